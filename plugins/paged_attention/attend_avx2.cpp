// Attention with AVX2 instructions.

#include "attention.h"

#if defined(__x86_64__)

#pragma GCC push_options
#pragma GCC target("avx2,fma")

#include "../native/lanes_avx2.h"
//
#include "../native/lanes_math.h"
//
#include "attend.h"

namespace paceline::attention {

const Attend kAvx2Attend = attend;

}  // namespace paceline::attention

#pragma GCC pop_options
#endif
