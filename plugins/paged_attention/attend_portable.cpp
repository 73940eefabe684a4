// Attention in plain C++.

#include <algorithm>
#include <cmath>

#include "attention.h"

#include "../native/lanes_portable.h"
//
#include "../native/lanes_math.h"

namespace paceline::attention {
namespace {

constexpr size_t kTileQueries = 4, kTilePages = 2, kTileColumns = 4;

}  // namespace
}  // namespace paceline::attention

#include "attend.h"

namespace paceline::attention {

const Kernels kPortableKernels{prepare, attend_segment, merge, finish};

}  // namespace paceline::attention
