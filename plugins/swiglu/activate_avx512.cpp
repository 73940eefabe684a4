// SwiGLU with AVX512 instructions.

#include "swiglu.h"

#if defined(__x86_64__)

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")

#include "../native/lanes_avx512.h"
//
#include "../native/lanes_math.h"
//
#include "activate.h"

namespace paceline::swiglu {

const Activate kAvx512Activate = activate;

}  // namespace paceline::swiglu

#pragma GCC pop_options
#endif
