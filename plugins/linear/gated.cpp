// The ops GatedLinearF32, GatedLinearBf16, GatedLinearInt8 and GatedLinearInt8Rows16: y = silu(x Wg) * (x Wu), where W = [Wg, Wu].
//
// Gate and up of the same columns are summed one after the other into buffers that stay in level 2, and leave as y: the
// [rows, 2 I] numbers in between never reach memory, and one op fewer has to wake the threads.

#include "../swiglu/swiglu.h"
#include "layer.h"
#include "linear.h"

namespace paceline::linear {
namespace {

// Rows x panels of one half, as floats, in memory of this thread.
const float* half_sums(const Call& call, size_t row, size_t rows, size_t panel, size_t panels,
                       const uint32_t* ahead, std::vector<float>& kept) {
  const size_t width = panels * kLanes;
  float* floats = scratch(kept, rows * call.planes * width);
  auto* sums = reinterpret_cast<uint32_t*>(floats);
  call.sum(row, rows, panel, panels, sums, width, ahead);
  if (call.format == Format::kInt8)  // in place: a row of floats lies over its own sums, or over those of rows before it
    for (size_t r = 0; r < rows; ++r)
      call.finish(sums + r * call.planes * width, width, floats + r * width, row + r, panel * kLanes, width);
  return floats;
}

void gate_group(const Call& call, float* y, size_t first_panel, size_t last_panel, const uint32_t* next) {
  static thread_local std::vector<float> kept_gate, kept_up;
  const swiglu::Activate activate = swiglu::activate_for_this_machine();
  const size_t columns = call.n / 2, panels = last_panel - first_panel, width = panels * kLanes;
  const size_t most = kFinishRows / call.planes;
  for (size_t row = 0; row < call.rows; row += most) {
    const size_t rows = std::min(most, call.rows - row);
    const size_t up_panel = columns / kLanes + first_panel;
    const uint32_t* ahead = row + rows < call.rows ? call.panel_at(first_panel) : next;
    const float* gate = half_sums(call, row, rows, first_panel, panels, call.panel_at(up_panel), kept_gate);
    const float* up = half_sums(call, row, rows, up_panel, panels, ahead, kept_up);
    for (size_t r = 0; r < rows; ++r)
      activate(gate + r * width, up + r * width, y + (row + r) * columns + first_panel * kLanes, width);
  }
}

// As `sum_task`; a group has panels of both halves.
void gate_task(const Call& call, float* y, size_t first_panel, size_t last_panel, const uint32_t* next) {
  const size_t group = call.reads_once() ? last_panel - first_panel : panels_of_group(2 * call.words);
  for (size_t panel = first_panel; panel < last_panel; panel += group) {
    const size_t end = std::min(panel + group, last_panel);
    gate_group(call, y, panel, end, end < last_panel ? call.panel_at(end) : next);
  }
}

template <Format F, size_t Planes = 1>
class Gated {
 public:
  static constexpr const char* kName = F == Format::kF32    ? "GatedLinearF32"
                                       : F == Format::kBf16 ? "GatedLinearBf16"
                                       : Planes == 1        ? "GatedLinearInt8"
                                                            : "GatedLinearInt8Rows16";
  static constexpr Port kOutputs[] = {{ort::kFloat}};

  explicit Gated(const Info& info) : layer_(info) {
    require(layer_.columns() % (2 * kLanes) == 0, "found: out_features that are not two halves of whole panels");
  }

  void compute(const Context& context) const {
    const Call call = layer_.prepared(context);
    Tensor shape = context.input(0);
    shape.dims[shape.rank - 1] = static_cast<int64_t>(call.n / 2);
    auto* y = context.output_like<float>(0, shape);
    const size_t panels = call.n / 2 / kLanes, tasks = num_tasks(panels);
    context.parallel_for(tasks, [&](size_t task) {
      gate_task(call, y, task * panels / tasks, (task + 1) * panels / tasks, layer_.successor().start(task, tasks));
    });
  }

 private:
  Layer<F, Planes> layer_;
};

template <Format F>
struct FloatGated : Gated<F> {
  using Gated<F>::Gated;
  static constexpr Port kInputs[] = {{ort::kFloat}, {element_type(F)}};
};

template <size_t Planes>
struct Int8Gated : Gated<Format::kInt8, Planes> {
  using Gated<Format::kInt8, Planes>::Gated;
  static constexpr Port kInputs[] = {{ort::kFloat}, {ort::kInt8}, {ort::kFloat}};
};

}  // namespace

std::array<const ort::CustomOp*, 4> gated_ops() {
  return {custom_op<FloatGated<Format::kF32>>(), custom_op<FloatGated<Format::kBf16>>(), custom_op<Int8Gated<1>>(),
          custom_op<Int8Gated<2>>()};
}

}  // namespace paceline::linear
