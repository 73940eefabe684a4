// The linear ops, for the library's table.

#pragma once

#include <array>

#include "../native/ort_abi.h"

namespace paceline::linear {

std::array<const ort::CustomOp*, 4> ops();
std::array<const ort::CustomOp*, 4> gated_ops();

}  // namespace paceline::linear
