// The op ResidualNorm, for the library's table.

#pragma once

#include <array>

#include "../native/ort_abi.h"

namespace paceline::residual_norm {

std::array<const ort::CustomOp*, 1> ops();

}  // namespace paceline::residual_norm
