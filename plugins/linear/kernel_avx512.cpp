// AVX-512 with BF16 and VNNI: one instruction per word, row and panel.
//
// Tile shapes keep up to 28 of the 32 registers busy with sums. Fewer rows take more panels, so that loads of different
// panels overlap; the shapes below were the fastest of those tried on Zen 4 (docs/log.md).

#include "kernel.h"

#if defined(__x86_64__)

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vnni")

#include <immintrin.h>

#include "tile.h"

namespace paceline::linear {
namespace {

struct Words512 {
  using Weight = __m512i;
  using Word = __m512i;
  static constexpr size_t kParts = 1;
  static Weight load(const uint32_t* weights) { return _mm512_loadu_si512(weights); }
  static Word broadcast(const uint32_t* x) { return _mm512_set1_epi32(static_cast<int>(*x)); }
};

struct F32 : Words512 {
  using Sum = __m512;
  static Sum zero() { return _mm512_setzero_ps(); }
  static Sum step(Sum sum, Word x, Weight w) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(x), _mm512_castsi512_ps(w), sum);
  }
  static void store(uint32_t* out, Sum sum) { _mm512_storeu_ps(out, sum); }
};

struct Bf16 : Words512 {
  using Sum = __m512;
  static Sum zero() { return _mm512_setzero_ps(); }
  static Sum step(Sum sum, Word x, Weight w) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w));
  }
  static void store(uint32_t* out, Sum sum) { _mm512_storeu_ps(out, sum); }
};

struct Int8 : Words512 {
  using Sum = __m512i;
  static Sum zero() { return _mm512_setzero_si512(); }
  static Sum step(Sum sum, Word x, Weight w) { return _mm512_dpbusd_epi32(sum, x, w); }
  static void store(uint32_t* out, Sum sum) { _mm512_storeu_si512(out, sum); }
};

template <typename Dot>
void sum_rows(const Block& b, size_t row, size_t rows) {
  switch (rows) {
    case 1: return sum_panels<Dot, 1, 8>(b, row);
    case 2: return sum_panels<Dot, 2, 8>(b, row);
    case 3: return sum_panels<Dot, 3, 8>(b, row);
    case 4: return sum_panels<Dot, 4, 6>(b, row);
    case 5: return sum_panels<Dot, 5, 5>(b, row);
    case 6: return sum_panels<Dot, 6, 4>(b, row);
    case 7: return sum_panels<Dot, 7, 3>(b, row);
    case 8: return sum_panels<Dot, 8, 3>(b, row);
  }
}

// Up to eight rows in one pass over the weights; more in sixes, the last few in two even parts.
size_t rows_of_pass(size_t left) { return left <= 8 ? left : left >= 12 ? 6 : (left + 1) / 2; }

template <typename Dot>
void sum_all(const Block& b) {
  for (size_t row = 0, rows = 0; row < b.rows; row += rows) {
    rows = rows_of_pass(b.rows - row);
    sum_rows<Dot>(b, row, rows);
  }
}

void sum(Format format, const Block& block) {
  switch (format) {
    case Format::kF32: return sum_all<F32>(block);
    case Format::kBf16: return sum_all<Bf16>(block);
    case Format::kInt8: return sum_all<Int8>(block);
  }
}

__mmask16 mask_of(size_t left) { return left >= 16 ? 0xffff : static_cast<__mmask16>((1u << left) - 1); }

void convert_row(Format format, const float* x, size_t k, size_t padded_k, float inverse_step, uint32_t* words) {
  const __m512 scale = _mm512_set1_ps(inverse_step);
  for (size_t i = 0; i < padded_k; i += 16) {
    const __m512 v = _mm512_maskz_loadu_ps(i < k ? mask_of(k - i) : 0, x + i);
    if (format == Format::kF32) {
      _mm512_storeu_ps(words + i, v);
    } else if (format == Format::kBf16) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(words + i / 2), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v)));
    } else {
      const __m512i q = _mm512_add_epi32(_mm512_cvtps_epi32(_mm512_mul_ps(v, scale)), _mm512_set1_epi32(128));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(words + i / 4), _mm512_cvtepi32_epi8(q));
    }
  }
}

void split_row(const float* x, size_t k, size_t padded_k, float inverse_step, uint32_t* high, uint32_t* low) {
  const __m512 scale = _mm512_set1_ps(inverse_step);
  const __m512i offset = _mm512_set1_epi32(128);
  for (size_t i = 0; i < padded_k; i += 16) {
    const __m512 v = _mm512_maskz_loadu_ps(i < k ? mask_of(k - i) : 0, x + i);
    const __m512i step = _mm512_cvtps_epi32(_mm512_mul_ps(v, scale));
    const __m512i upper = _mm512_srai_epi32(_mm512_add_epi32(step, offset), 8);
    const __m512i lower = _mm512_sub_epi32(step, _mm512_slli_epi32(upper, 8));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(high + i / 4), _mm512_cvtepi32_epi8(_mm512_add_epi32(upper, offset)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(low + i / 4), _mm512_cvtepi32_epi8(_mm512_add_epi32(lower, offset)));
  }
}

float max_abs(const float* x, size_t k) {
  __m512 largest = _mm512_setzero_ps();
  for (size_t i = 0; i < k; i += 16)
    largest = _mm512_max_ps(largest, _mm512_abs_ps(_mm512_maskz_loadu_ps(mask_of(k - i), x + i)));
  return _mm512_reduce_max_ps(largest);
}

}  // namespace

const Kernels kAvx512Kernels = {sum, convert_row, max_abs, split_row};

}  // namespace paceline::linear

#pragma GCC pop_options
#endif
