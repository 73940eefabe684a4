// Attention with AVX2 instructions: 16 registers of half a vector of ours, 12 of them sums.

#include <algorithm>
#include <cmath>

#include "attention.h"

#if defined(__x86_64__)

#pragma GCC push_options
#pragma GCC target("avx2,fma")

#include "../native/lanes_avx2.h"
//
#include "../native/lanes_math.h"

namespace paceline::attention {
namespace {

constexpr size_t kTileQueries = 6, kTilePages = 1, kTileColumns = 1;

}  // namespace
}  // namespace paceline::attention

#include "attend.h"

namespace paceline::attention {

const Kernels kAvx2Kernels{prepare, attend_segment, merge, finish};

}  // namespace paceline::attention

#pragma GCC pop_options
#endif
