// Attention with AVX512 instructions.

#include "attention.h"

#if defined(__x86_64__)

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")

#include "../native/lanes_avx512.h"
//
#include "../native/lanes_math.h"
//
#include "attend.h"

namespace paceline::attention {

const Attend kAvx512Attend = attend;

}  // namespace paceline::attention

#pragma GCC pop_options
#endif
