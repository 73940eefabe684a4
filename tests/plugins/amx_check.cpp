// The AMX kernel on emulated tiles, for test_amx.py: rows x panels of bf16 or int8 sums.

#include "kernel_amx.cpp"

namespace paceline::linear {
const Kernels kAvx512Kernels = {nullptr, nullptr, nullptr, nullptr};  // float32 and conversions are not under test
}

extern "C" void amx_sums(int is_int8, const uint32_t* x, size_t rows, const uint32_t* weights, size_t words,
                         size_t panels, uint32_t* sums) {
  using namespace paceline::linear;
  kAmxKernels.sum(is_int8 ? Format::kInt8 : Format::kBf16,
                  {x, words, rows, weights, words, panels, sums, panels * kLanes, nullptr});
}
