// Sixteen floats at a time in plain C++; the same names as lanes_avx2.h and lanes_avx512.h.
//
// A kernel is written once against these names and compiled once per instruction set. Sums over lanes have one fixed
// order per instruction set; `fma` rounds once where the instruction set has it and twice here.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace paceline {
namespace {

struct Lanes {
  float lane[16];

  static Lanes set(float value) {
    Lanes out;
    for (float& lane : out.lane) lane = value;
    return out;
  }
  static Lanes load(const float* from) {
    Lanes out;
    std::memcpy(out.lane, from, sizeof out.lane);
    return out;
  }
  static Lanes load(const uint16_t* bf16) {
    Lanes out;
    for (size_t i = 0; i < 16; ++i) {
      const uint32_t bits = static_cast<uint32_t>(bf16[i]) << 16;
      std::memcpy(&out.lane[i], &bits, sizeof bits);
    }
    return out;
  }
  void store(float* to) const { std::memcpy(to, lane, sizeof lane); }
  // Rounded to nearest, ties to even; what is no number stays none.
  void store(uint16_t* bf16) const {
    for (size_t i = 0; i < 16; ++i) {
      uint32_t bits;
      std::memcpy(&bits, &lane[i], sizeof bits);
      const bool is_number = (bits & 0x7fffffffu) <= 0x7f800000u;
      bf16[i] = static_cast<uint16_t>((is_number ? bits + 0x7fff + (bits >> 16 & 1) : bits | 0x400000) >> 16);
    }
  }
  // Lanes outside [first, last) become `otherwise`.
  Lanes keep(int first, int last, float otherwise) const {
    Lanes out;
    for (int i = 0; i < 16; ++i) out.lane[i] = i >= first && i < last ? lane[i] : otherwise;
    return out;
  }
  float sum() const {
    float total = 0;
    for (float value : lane) total += value;
    return total;
  }
  float largest() const { return *std::max_element(lane, lane + 16); }
};

template <typename Function>
Lanes each(Function function) {
  Lanes out;
  for (size_t i = 0; i < 16; ++i) out.lane[i] = function(i);
  return out;
}

inline Lanes operator+(Lanes a, Lanes b) {
  return each([&](size_t i) { return a.lane[i] + b.lane[i]; });
}
inline Lanes operator-(Lanes a, Lanes b) {
  return each([&](size_t i) { return a.lane[i] - b.lane[i]; });
}
inline Lanes operator*(Lanes a, Lanes b) {
  return each([&](size_t i) { return a.lane[i] * b.lane[i]; });
}
inline Lanes operator/(Lanes a, Lanes b) {
  return each([&](size_t i) { return a.lane[i] / b.lane[i]; });
}
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
  return each([&](size_t i) { return a.lane[i] * b.lane[i] + c.lane[i]; });
}
inline Lanes max(Lanes a, Lanes b) {
  return each([&](size_t i) { return std::max(a.lane[i], b.lane[i]); });
}
inline Lanes min(Lanes a, Lanes b) {
  return each([&](size_t i) { return std::min(a.lane[i], b.lane[i]); });
}
inline Lanes round(Lanes a) {
  return each([&](size_t i) { return std::nearbyint(a.lane[i]); });
}
// 2^n for whole n in [-126, 127].
inline Lanes power_of_two(Lanes n) {
  return each([&](size_t i) {
    const uint32_t bits = static_cast<uint32_t>(static_cast<int>(n.lane[i]) + 127) << 23;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  });
}
// x * 2^n for whole n in [-126, 127].
inline Lanes scale_by_power(Lanes x, Lanes n) { return x * power_of_two(n); }
// value where x >= bound, else 0.
inline Lanes where_at_least(Lanes x, Lanes bound, Lanes value) {
  return each([&](size_t i) { return x.lane[i] >= bound.lane[i] ? value.lane[i] : 0.0f; });
}

}  // namespace
}  // namespace paceline
