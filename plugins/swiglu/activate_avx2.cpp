// SwiGLU with AVX2 instructions.

#include "swiglu.h"

#if defined(__x86_64__)

#pragma GCC push_options
#pragma GCC target("avx2,fma")

#include "../native/lanes_avx2.h"
//
#include "../native/lanes_math.h"
//
#include "activate.h"

namespace paceline::swiglu {

const Activate kAvx2Activate = activate;

}  // namespace paceline::swiglu

#pragma GCC pop_options
#endif
