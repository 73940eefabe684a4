// SwiGLU in plain C++.

#include "swiglu.h"
//
#include "../native/lanes_portable.h"
//
#include "../native/lanes_math.h"
//
#include "activate.h"

namespace paceline::swiglu {

const Activate kPortableActivate = activate;

}  // namespace paceline::swiglu
