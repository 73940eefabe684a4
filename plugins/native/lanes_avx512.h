// Sixteen floats in one AVX-512 register; names as in lanes_portable.h. Include under a target pragma.

#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace paceline {
namespace {

struct Lanes {
  __m512 value;

  static Lanes set(float v) { return {_mm512_set1_ps(v)}; }
  static Lanes load(const float* from) { return {_mm512_loadu_ps(from)}; }
  static Lanes load(const uint16_t* bf16) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bf16));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16))};
  }
  void store(float* to) const { _mm512_storeu_ps(to, value); }
  // Not VCVTNEPS2BF16: it takes denormals for 0, and the cache's bits are to be the same on every instruction set.
  void store(uint16_t* bf16) const {
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i nearest = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __mmask16 is_no_number = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    const __m512i rounded = _mm512_srli_epi32(_mm512_mask_mov_epi32(nearest, is_no_number, quiet), 16);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(bf16), _mm512_cvtepi32_epi16(rounded));
  }
  Lanes keep(int first, int last, float otherwise) const {
    const __mmask16 below = last <= 0 ? 0 : last >= 16 ? 0xffff : static_cast<__mmask16>((1u << last) - 1);
    const __mmask16 from = first <= 0 ? 0xffff : first >= 16 ? 0 : static_cast<__mmask16>(0xffffu << first);
    return {_mm512_mask_mov_ps(_mm512_set1_ps(otherwise), below & from, value)};
  }
  float sum() const { return _mm512_reduce_add_ps(value); }
  float largest() const { return _mm512_reduce_max_ps(value); }
};

inline Lanes operator+(Lanes a, Lanes b) { return {_mm512_add_ps(a.value, b.value)}; }
inline Lanes operator-(Lanes a, Lanes b) { return {_mm512_sub_ps(a.value, b.value)}; }
inline Lanes operator*(Lanes a, Lanes b) { return {_mm512_mul_ps(a.value, b.value)}; }
inline Lanes operator/(Lanes a, Lanes b) { return {_mm512_div_ps(a.value, b.value)}; }
inline Lanes fma(Lanes a, Lanes b, Lanes c) { return {_mm512_fmadd_ps(a.value, b.value, c.value)}; }
inline Lanes max(Lanes a, Lanes b) { return {_mm512_max_ps(a.value, b.value)}; }
inline Lanes min(Lanes a, Lanes b) { return {_mm512_min_ps(a.value, b.value)}; }
inline Lanes round(Lanes a) { return {_mm512_roundscale_ps(a.value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
inline Lanes power_of_two(Lanes n) {
  const __m512i biased = _mm512_add_epi32(_mm512_cvtps_epi32(n.value), _mm512_set1_epi32(127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(biased, 23))};
}
inline Lanes scale_by_power(Lanes x, Lanes n) { return {_mm512_scalef_ps(x.value, n.value)}; }
inline Lanes where_at_least(Lanes x, Lanes bound, Lanes value) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.value, bound.value, _CMP_GE_OQ), value.value)};
}

}  // namespace
}  // namespace paceline
