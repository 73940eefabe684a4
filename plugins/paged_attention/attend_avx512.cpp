// Attention with AVX-512 instructions: 32 registers, 24 of them sums.

#include <algorithm>
#include <cmath>

#include "attention.h"

#if defined(__x86_64__)

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")

#include "../native/lanes_avx512.h"
//
#include "../native/lanes_math.h"
//
#include "products_avx512.h"

namespace paceline::attention {
namespace {

constexpr size_t kTileQueries = 6, kTilePages = 4, kTileColumns = 4;

}  // namespace
}  // namespace paceline::attention

#include "attend.h"

namespace paceline::attention {

const Kernels kAvx512Kernels{prepare, attend_segment, merge, finish};

}  // namespace paceline::attention

#pragma GCC pop_options
#endif
