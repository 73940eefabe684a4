// AVX2 and FMA: a panel row is two vectors; bf16 is widened to float, int8 to int16 (pmaddubsw would saturate).

#include "kernel.h"

#if defined(__x86_64__)

#pragma GCC push_options
#pragma GCC target("avx2,fma")

#include <immintrin.h>

#include "tile.h"

namespace paceline::linear {
namespace {

__m256i load_words(const uint32_t* words) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words)); }
__m256i broadcast_word(const uint32_t* word) { return _mm256_set1_epi32(static_cast<int>(*word)); }

struct FloatSums {
  using Sum = __m256;
  static constexpr size_t kParts = 2;
  static Sum zero() { return _mm256_setzero_ps(); }
  static void store(uint32_t* out, Sum sum) { _mm256_storeu_ps(reinterpret_cast<float*>(out), sum); }
};

struct F32 : FloatSums {
  using Weight = __m256;
  using Word = __m256;
  static Weight load(const uint32_t* weights) { return _mm256_castsi256_ps(load_words(weights)); }
  static Word broadcast(const uint32_t* x) { return _mm256_castsi256_ps(broadcast_word(x)); }
  static Sum step(Sum sum, Word x, Weight w) { return _mm256_fmadd_ps(x, w, sum); }
};

struct Bf16 : FloatSums {
  struct Weight {
    __m256 even, odd;
  };
  using Word = Weight;
  static Weight widened(__m256i pairs) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)),
            _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000u))))};
  }
  static Weight load(const uint32_t* weights) { return widened(load_words(weights)); }
  static Word broadcast(const uint32_t* x) { return widened(broadcast_word(x)); }
  static Sum step(Sum sum, Word x, Weight w) {
    return _mm256_fmadd_ps(x.odd, w.odd, _mm256_fmadd_ps(x.even, w.even, sum));
  }
};

struct Int8 {
  using Sum = __m256i;
  static constexpr size_t kParts = 2;
  struct Weight {
    __m256i even, odd;  // int16 of bytes 0, 2 and of bytes 1, 3
  };
  using Word = Weight;
  static Sum zero() { return _mm256_setzero_si256(); }
  static Weight load(const uint32_t* weights) {
    const __m256i bytes = load_words(weights);
    return {_mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8), _mm256_srai_epi16(bytes, 8)};
  }
  static Word broadcast(const uint32_t* x) {
    const __m256i bytes = broadcast_word(x);
    return {_mm256_and_si256(bytes, _mm256_set1_epi16(0xff)), _mm256_srli_epi16(bytes, 8)};
  }
  static Sum step(Sum sum, Word x, Weight w) {
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(x.even, w.even));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(x.odd, w.odd));
  }
  static void store(uint32_t* out, Sum sum) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), sum); }
};

template <typename Dot>
void sum_all(const Block& b) {
  size_t row = 0;
  for (; row + 3 <= b.rows; row += 3) sum_panels<Dot, 3, 1>(b, row);
  if (b.rows - row == 2) return sum_panels<Dot, 2, 1>(b, row);
  if (b.rows - row == 1) return sum_panels<Dot, 1, 2>(b, row);
}

void sum(Format format, const Block& block) {
  switch (format) {
    case Format::kF32: return sum_all<F32>(block);
    case Format::kBf16: return sum_all<Bf16>(block);
    case Format::kInt8: return sum_all<Int8>(block);
  }
}

// Rows are short beside the weights: plain code converts them.
void convert_row(Format format, const float* x, size_t k, size_t padded_k, float inverse_step, uint32_t* words) {
  kPortableKernels.convert_row(format, x, k, padded_k, inverse_step, words);
}

void split_row(const float* x, size_t k, size_t padded_k, float inverse_step, uint32_t* high, uint32_t* low) {
  kPortableKernels.split_row(x, k, padded_k, inverse_step, high, low);
}

float max_abs(const float* x, size_t k) { return kPortableKernels.max_abs(x, k); }

}  // namespace

const Kernels kAvx2Kernels = {sum, convert_row, max_abs, split_row};

}  // namespace paceline::linear

#pragma GCC pop_options
#endif
