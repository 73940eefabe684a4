// The inner product in plain C++: what runs where no vector path exists, and what the vector paths are compared with.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernel.h"

namespace paceline::linear {
namespace {

float float_from_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

uint32_t bits_from_float(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

struct F32 {
  using Sum = float;
  static Sum step(Sum sum, uint32_t x, uint32_t w) { return sum + float_from_bits(x) * float_from_bits(w); }
  static uint32_t bits(Sum sum) { return bits_from_float(sum); }
};

// The even element of a pair lies in the low half.
struct Bf16 {
  using Sum = float;
  static Sum step(Sum sum, uint32_t x, uint32_t w) {
    sum += float_from_bits(x << 16) * float_from_bits(w << 16);
    return sum + float_from_bits(x & 0xffff0000u) * float_from_bits(w & 0xffff0000u);
  }
  static uint32_t bits(Sum sum) { return bits_from_float(sum); }
};

struct Int8 {
  using Sum = int32_t;
  static Sum step(Sum sum, uint32_t x, uint32_t w) {
    for (int shift = 0; shift < 32; shift += 8)
      sum += static_cast<int32_t>(x >> shift & 0xff) * static_cast<int8_t>(w >> shift & 0xff);
    return sum;
  }
  static uint32_t bits(Sum sum) { return static_cast<uint32_t>(sum); }
};

template <typename Dot>
void sum_row(const Block& b, size_t row, size_t panel) {
  typename Dot::Sum sums[kLanes] = {};
  const uint32_t* x = b.x + row * b.x_stride;
  const uint32_t* weights = b.weights + panel * b.words * kWordsPerPanelRow;
  for (size_t word = 0; word < b.words; ++word)
    for (size_t lane = 0; lane < kLanes; ++lane)
      sums[lane] = Dot::step(sums[lane], x[word], weights[word * kWordsPerPanelRow + lane]);
  for (size_t lane = 0; lane < kLanes; ++lane)
    b.sums[row * b.sums_stride + panel * kLanes + lane] = Dot::bits(sums[lane]);
}

template <typename Dot>
void sum_all(const Block& b) {
  for (size_t panel = 0; panel < b.panels; ++panel)
    for (size_t row = 0; row < b.rows; ++row) sum_row<Dot>(b, row, panel);
}

void sum(Format format, const Block& block) {
  switch (format) {
    case Format::kF32: return sum_all<F32>(block);
    case Format::kBf16: return sum_all<Bf16>(block);
    case Format::kInt8: return sum_all<Int8>(block);
  }
}

// Round to nearest, ties to even; NaN stays NaN.
uint16_t bf16_from_float(float value) {
  const uint32_t bits = bits_from_float(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void convert_row(Format format, const float* x, size_t k, size_t padded_k, float inverse_step, uint32_t* words) {
  if (format == Format::kF32) {
    std::memcpy(words, x, k * sizeof(float));
    std::fill(words + k, words + padded_k, 0);
  } else if (format == Format::kBf16) {
    auto* out = reinterpret_cast<uint16_t*>(words);
    for (size_t i = 0; i < k; ++i) out[i] = bf16_from_float(x[i]);
    std::fill(out + k, out + padded_k, 0);
  } else {
    auto* out = reinterpret_cast<uint8_t*>(words);
    for (size_t i = 0; i < k; ++i) out[i] = static_cast<uint8_t>(static_cast<int>(std::nearbyint(x[i] * inverse_step)) + 128);
    std::fill(out + k, out + padded_k, 128);
  }
}

// A step is 256 * high + low with both in int8's range, each stored with the offset of 128.
void split_row(const float* x, size_t k, size_t padded_k, float inverse_step, uint32_t* high, uint32_t* low) {
  auto* high_bytes = reinterpret_cast<uint8_t*>(high);
  auto* low_bytes = reinterpret_cast<uint8_t*>(low);
  for (size_t i = 0; i < k; ++i) {
    const int step = static_cast<int>(std::nearbyint(x[i] * inverse_step));
    const int upper = (step + 128) >> 8;
    high_bytes[i] = static_cast<uint8_t>(upper + 128);
    low_bytes[i] = static_cast<uint8_t>(step - 256 * upper + 128);
  }
  std::fill(high_bytes + k, high_bytes + padded_k, 128);
  std::fill(low_bytes + k, low_bytes + padded_k, 128);
}

float max_abs(const float* x, size_t k) {
  float largest = 0;
  for (size_t i = 0; i < k; ++i) largest = std::max(largest, std::fabs(x[i]));
  return largest;
}

}  // namespace

const Kernels kPortableKernels = {sum, convert_row, max_abs, split_row};

}  // namespace paceline::linear
