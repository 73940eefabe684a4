// exp, exp2, sigmoid and tanh over Lanes; include after one of the lanes_*.h files.

#pragma once

namespace paceline {
namespace {

// e^x to about 1 unit in the last place for x in [-87, 88]; below that exactly 0, above that clamped.
// Range reduction and polynomial: Cephes expf (S. L. Moshier).
inline Lanes exp(Lanes x) {
  const Lanes lowest = Lanes::set(-87.0f);
  const Lanes clamped = min(max(x, lowest), Lanes::set(88.0f));
  const Lanes n = round(clamped * Lanes::set(1.44269504f));
  Lanes r = fma(n, Lanes::set(-0.693359375f), clamped);
  r = fma(n, Lanes::set(2.12194440e-4f), r);
  Lanes p = Lanes::set(1.9875691500e-4f);
  p = fma(p, r, Lanes::set(1.3981999507e-3f));
  p = fma(p, r, Lanes::set(8.3334519073e-3f));
  p = fma(p, r, Lanes::set(4.1665795894e-2f));
  p = fma(p, r, Lanes::set(1.6666665459e-1f));
  p = fma(p, r, Lanes::set(5.0000001201e-1f));
  p = fma(p, r * r, r + Lanes::set(1.0f));
  return where_at_least(x, lowest, scale_by_power(p, n));
}

// 2^x to about 1 unit in the last place for x in [-126, 127], a power of two for whole x; below that exactly 0. No x
// above that: softmax has none. Polynomial: Cephes exp2f (S. L. Moshier).
inline Lanes exp2(Lanes x) {
  const Lanes lowest = Lanes::set(-126.0f);
  const Lanes clamped = max(x, lowest), n = round(clamped), r = clamped - n;
  Lanes p = Lanes::set(1.535336188e-4f);
  p = fma(p, r, Lanes::set(1.339887440e-3f));
  p = fma(p, r, Lanes::set(9.618437357e-3f));
  p = fma(p, r, Lanes::set(5.550332471e-2f));
  p = fma(p, r, Lanes::set(2.402264791e-1f));
  p = fma(p, r, Lanes::set(6.931472028e-1f));
  p = fma(p, r, Lanes::set(1.0f));
  return where_at_least(x, lowest, scale_by_power(p, n));
}

// Exactly 0 below -87: a clamped exponential would leave 6e-39, which a gate of -1e30 makes visible.
inline Lanes sigmoid(Lanes x) {
  const Lanes one = Lanes::set(1.0f);
  return where_at_least(x, Lanes::set(-87.0f), one / (one + exp(Lanes::set(0.0f) - x)));
}

inline Lanes tanh(Lanes x) {
  const Lanes one = Lanes::set(1.0f), two = Lanes::set(2.0f);
  return one - two / (exp(x * two) + one);
}

}  // namespace
}  // namespace paceline
