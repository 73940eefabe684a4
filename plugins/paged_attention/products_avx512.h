// Two at a time: VDPBF16PS multiplies pairs of bfloat16 and adds both products to a float, twice the work of an FMA.

#pragma once

#include "products.h"

namespace paceline::attention {
namespace {

template <>
struct Products<uint16_t> {
  using Kept = uint16_t;
  using Operand = __m512i;  // 16 pairs
  static constexpr size_t kStep = 2;

  // VCVTNEPS2BF16 takes denormals for 0, and so would VDPBF16PS.
  static Lanes keep(Lanes values, Kept* to) {
    const __m256i kept = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(values.value));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), kept);
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(kept), 16))};
  }
  static Operand repeated(const Kept* at) {
    int32_t pair;
    __builtin_memcpy(&pair, at, sizeof pair);
    return _mm512_set1_epi32(pair);
  }
  // Elements d and d + 1 of 16 keys lie one row after the other, 32 numbers: 0, 16, 1, 17, ... are pairs.
  static Operand keys(const uint16_t* at) {
    const __m512i pairs = _mm512_add_epi16(_mm512_set1_epi32(16 << 16), half_steps());
    return _mm512_permutexvar_epi16(pairs, _mm512_loadu_si512(at));
  }
  // Columns of two rows that are head_dim apart, column by column.
  template <size_t C>
  static void values(const uint16_t* at, size_t head_dim, Operand (&columns)[C]) {
    if constexpr (C % 2 == 0) {
      const __m512i low = _mm512_add_epi16(_mm512_set1_epi32(32 << 16), half_steps());
      const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
      for (size_t c = 0; c < C; c += 2) {
        const __m512i first = _mm512_loadu_si512(at + c * 16), second = _mm512_loadu_si512(at + head_dim + c * 16);
        columns[c] = _mm512_permutex2var_epi16(first, low, second);
        columns[c + 1] = _mm512_permutex2var_epi16(first, high, second);
      }
    } else {
      for (size_t c = 0; c < C; ++c) {
        const __m512i second = _mm512_slli_epi32(widened(at + head_dim + c * 16), 16);
        columns[c] = _mm512_or_si512(widened(at + c * 16), second);
      }
    }
  }
  static Operand only(Operand column, int index) {
    return _mm512_and_si512(column, _mm512_set1_epi32(index == 0 ? 0xffff : -0x10000));
  }
  static Lanes add(Operand left, Operand right, Lanes sum) {
    return {_mm512_dpbf16_ps(sum.value, reinterpret_cast<__m512bh>(left), reinterpret_cast<__m512bh>(right))};
  }

 private:
  // 0, 0, 1, 1, 2, 2, ... 15, 15
  static __m512i half_steps() {
    const __m512i steps = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return _mm512_or_si512(steps, _mm512_slli_epi32(steps, 16));
  }
  static __m512i widened(const uint16_t* at) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  }
};

}  // namespace
}  // namespace paceline::attention
