// E4M3FN, the 8-bit floating point of the key/value cache: sign, 4 bits of exponent (bias 7), 3 of mantissa, no
// infinities, largest 448. Source: OCP 8-bit floating point specification (OFP8) 1.0, table 2.

#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace paceline::attention {
namespace {

constexpr float kFloat8Largest = 448.0f;
constexpr float kFloat8LeastNormal = 0.015625f;  // 2^-6
constexpr float kFloat8Step = 0.001953125f;      // 2^-9: between numbers below the least normal

inline uint32_t bits_of_float(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// To nearest, ties to even; what does not fit becomes the largest number, what is no number stays none.
inline uint8_t float8_from_float(float value) {
  const uint32_t bits = bits_of_float(value), sign = bits >> 24 & 0x80;
  if (std::isnan(value)) return static_cast<uint8_t>(sign | 0x7f);
  const float size = std::fabs(value);
  if (size >= kFloat8Largest) return static_cast<uint8_t>(sign | 0x7e);
  if (size < kFloat8LeastNormal) return static_cast<uint8_t>(sign | static_cast<uint32_t>(std::nearbyint(size / kFloat8Step)));
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t rounded = magnitude + 0x7ffff + (magnitude >> 20 & 1);  // 20 bits of mantissa go
  const uint32_t code = (rounded >> 20) - ((127 - 7) << 3);
  return static_cast<uint8_t>(sign | (code > 0x7e ? 0x7e : code));
}

// The same numbers as bfloat16, which holds them all. The exponent of a float is found by a product, so that numbers
// below the least normal need no case of their own.
inline void bfloat16_from_float8(const uint8_t* from, uint16_t* to, size_t count) {
  constexpr float kBias = 0x1p120f;  // 127 - 7
  for (size_t i = 0; i < count; ++i) {
    const uint32_t magnitude = static_cast<uint32_t>(from[i] & 0x7f) << 20;
    float value;
    std::memcpy(&value, &magnitude, sizeof value);
    value *= kBias;
    to[i] = static_cast<uint16_t>(bits_of_float(value) >> 16 | static_cast<uint32_t>(from[i] & 0x80) << 8);
  }
}

}  // namespace
}  // namespace paceline::attention
