// Passes over logits in plain C++.

#include "sampler.h"
//
#include "../native/lanes_portable.h"
//
#include "../native/lanes_math.h"
//
#include "rows.h"

namespace paceline::sampler {

const Rows kPortableRows = {largest, noisy_largest, at_least, sum_of_exponentials};

}  // namespace paceline::sampler
