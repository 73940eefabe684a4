// The op SwiGLU: gate_up [..., 2 I] -> silu(gate) * up [..., I], gate being the first half.

#include "swiglu.h"

#include "../native/cpu.h"
#include "../native/custom_op.h"

namespace paceline::swiglu {

Activate activate_for_this_machine() {
#if defined(__x86_64__)
  if (isa() >= Isa::kAvx512) return kAvx512Activate;
  if (isa() == Isa::kAvx2) return kAvx2Activate;
#endif
  return kPortableActivate;
}

namespace {

constexpr size_t kRowsInTask = 4;

class SwiGlu {
 public:
  static constexpr const char* kName = "SwiGLU";
  static constexpr Port kInputs[] = {{ort::kFloat}};
  static constexpr Port kOutputs[] = {{ort::kFloat}};

  explicit SwiGlu(const Info&) {}

  void compute(const Context& context) const {
    const Tensor gate_up = context.input(0);
    if (gate_up.rank == 0 || gate_up.last() % 2 != 0) throw std::runtime_error("found: gate_up of an odd last axis");
    const auto rows = static_cast<size_t>(gate_up.rows()), width = static_cast<size_t>(gate_up.last() / 2);
    Tensor y_shape = gate_up;
    y_shape.dims[y_shape.rank - 1] = static_cast<int64_t>(width);
    auto* y = context.output_like<float>(0, y_shape);
    const auto* x = gate_up.as<float>();
    const Activate activate = activate_for_this_machine();
    context.parallel_for((rows + kRowsInTask - 1) / kRowsInTask, [&](size_t task) {
      const size_t end = rows < (task + 1) * kRowsInTask ? rows : (task + 1) * kRowsInTask;
      for (size_t row = task * kRowsInTask; row < end; ++row)
        activate(x + row * 2 * width, x + row * 2 * width + width, y + row * width, width);
    });
  }
};

}  // namespace

std::array<const ort::CustomOp*, 1> ops() { return {custom_op<SwiGlu>()}; }

}  // namespace paceline::swiglu
