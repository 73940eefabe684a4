// Passes over logits with AVX512 instructions.

#include <cstring>

#include "sampler.h"

#if defined(__x86_64__)

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")

#include "../native/lanes_avx512.h"
//
#include "../native/lanes_math.h"
//
#include "rows.h"

namespace paceline::sampler {

const Rows kAvx512Rows = {largest, noisy_largest, at_least, sum_of_exponentials};

}  // namespace paceline::sampler

#pragma GCC pop_options
#endif
