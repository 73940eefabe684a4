// silu(gate) * up, sixteen elements at a time; compiled once per instruction set.

#pragma once

#include "swiglu.h"

namespace paceline::swiglu {
namespace {

inline Lanes activated(Lanes gate, Lanes up) { return gate * sigmoid(gate) * up; }

void activate(const float* gate, const float* up, float* y, size_t count) {
  size_t i = 0;
  for (; i + 16 <= count; i += 16) activated(Lanes::load(gate + i), Lanes::load(up + i)).store(y + i);
  if (i == count) return;
  float gates[16] = {}, ups[16] = {}, out[16];
  for (size_t j = i; j < count; ++j) gates[j - i] = gate[j], ups[j - i] = up[j];
  activated(Lanes::load(gates), Lanes::load(ups)).store(out);
  for (size_t j = i; j < count; ++j) y[j] = out[j - i];
}

}  // namespace
}  // namespace paceline::swiglu
