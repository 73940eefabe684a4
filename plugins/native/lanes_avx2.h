// Sixteen floats in two AVX2 registers; names as in lanes_portable.h. Include under a target pragma.

#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace paceline {
namespace {

struct Lanes {
  __m256 low, high;

  static Lanes set(float v) { return {_mm256_set1_ps(v), _mm256_set1_ps(v)}; }
  static Lanes load(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
  static __m256 widened(const uint16_t* bf16) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bf16));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
  static Lanes load(const uint16_t* bf16) { return {widened(bf16), widened(bf16 + 8)}; }
  void store(float* to) const {
    _mm256_storeu_ps(to, low);
    _mm256_storeu_ps(to + 8, high);
  }
  static __m128i narrowed(__m256 value) {
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i nearest = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i is_no_number = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    const __m256i halves = _mm256_srli_epi32(_mm256_blendv_epi8(nearest, quiet, is_no_number), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
  }
  void store(uint16_t* bf16) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(bf16), narrowed(low));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(bf16 + 8), narrowed(high));
  }
  Lanes keep(int first, int last, float otherwise) const {
    float lane[16];
    store(lane);
    for (int i = 0; i < 16; ++i)
      if (i < first || i >= last) lane[i] = otherwise;
    return load(lane);
  }
  float sum() const {
    float lane[8];
    _mm256_storeu_ps(lane, _mm256_add_ps(low, high));
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
  }
  float largest() const {
    float lane[8], found;
    _mm256_storeu_ps(lane, _mm256_max_ps(low, high));
    found = lane[0];
    for (float value : lane) found = value > found ? value : found;
    return found;
  }
};

inline Lanes operator+(Lanes a, Lanes b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
inline Lanes operator-(Lanes a, Lanes b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
inline Lanes operator*(Lanes a, Lanes b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
inline Lanes operator/(Lanes a, Lanes b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline Lanes max(Lanes a, Lanes b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
inline Lanes min(Lanes a, Lanes b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
inline Lanes round(Lanes a) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.low, kNearest), _mm256_round_ps(a.high, kNearest)};
}
inline __m256 power_of_two(__m256 n) {
  const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
}
inline Lanes power_of_two(Lanes n) { return {power_of_two(n.low), power_of_two(n.high)}; }
inline Lanes scale_by_power(Lanes x, Lanes n) { return x * power_of_two(n); }
inline Lanes where_at_least(Lanes x, Lanes bound, Lanes value) {
  return {_mm256_and_ps(_mm256_cmp_ps(x.low, bound.low, _CMP_GE_OQ), value.low),
          _mm256_and_ps(_mm256_cmp_ps(x.high, bound.high, _CMP_GE_OQ), value.high)};
}

}  // namespace
}  // namespace paceline
