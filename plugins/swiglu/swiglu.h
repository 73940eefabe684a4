// What the parts of the SwiGLU kernel share.

#pragma once

#include <array>
#include <cstddef>

#include "../native/ort_abi.h"

namespace paceline::swiglu {

// y[i] = silu(gate[i]) * up[i] for `count` elements.
using Activate = void (*)(const float* gate, const float* up, float* y, size_t count);

extern const Activate kPortableActivate;
#if defined(__x86_64__)
extern const Activate kAvx2Activate, kAvx512Activate;
#endif

Activate activate_for_this_machine();

std::array<const ort::CustomOp*, 1> ops();

}  // namespace paceline::swiglu
