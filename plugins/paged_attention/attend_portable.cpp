// Attention in plain C++.

#include "attention.h"
//
#include "../native/lanes_portable.h"
//
#include "../native/lanes_math.h"
//
#include "attend.h"

namespace paceline::attention {

const Attend kPortableAttend = attend;

}  // namespace paceline::attention
