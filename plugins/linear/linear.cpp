// The ops LinearF32, LinearBf16, LinearInt8 and LinearInt8Rows16: y = x W + bias.
//
// The sums are written into y's own memory, since both are 32 bits wide; only a last panel that hangs over N, and rows
// that are split in two, go through a buffer of their own.

#include "linear.h"

#include "../native/cpu.h"
#include "layer.h"

namespace paceline::linear {

const Kernels& kernels_for_this_machine() {
#if defined(__x86_64__)
  switch (isa()) {
    case Isa::kAmx: return kAmxKernels;
    case Isa::kAvx512: return kAvx512Kernels;
    case Isa::kAvx2: return kAvx2Kernels;
    case Isa::kPortable: break;
  }
#endif
  return kPortableKernels;
}

namespace {

// Panels that lie whole inside y.
void sum_in_place(const Call& call, float* y, size_t first_panel, size_t panels, size_t row, size_t rows,
                const uint32_t* ahead) {
  const size_t column = first_panel * kLanes;
  float* out = y + row * call.n + column;
  call.sum(row, rows, first_panel, panels, reinterpret_cast<uint32_t*>(out), call.n, ahead);
  if (call.format != Format::kInt8 && call.bias == nullptr) return;
  for (size_t r = 0; r < rows; ++r, out += call.n)
    call.finish(reinterpret_cast<const uint32_t*>(out), call.n, out, row + r, column, panels * kLanes);
}

// The same where each row of y has two of sums.
void sum_apart(const Call& call, float* y, size_t first_panel, size_t panels, size_t row, size_t rows,
               const uint32_t* ahead) {
  static thread_local std::vector<uint32_t> kept;
  const size_t column = first_panel * kLanes, width = panels * kLanes;
  uint32_t* sums = scratch(kept, rows * call.planes * width);
  call.sum(row, rows, first_panel, panels, sums, width, ahead);
  for (size_t r = 0; r < rows; ++r)
    call.finish(sums + r * call.planes * width, width, y + (row + r) * call.n + column, row + r, column, width);
}

void sum_inside(const Call& call, float* y, size_t first_panel, size_t panels, size_t row, size_t rows,
                const uint32_t* ahead) {
  (call.is_split() ? sum_apart : sum_in_place)(call, y, first_panel, panels, row, rows, ahead);
}

// The one panel that hangs over N.
void sum_edge(const Call& call, float* y, size_t panel, size_t row, size_t rows) {
  const size_t column = panel * kLanes;
  uint32_t sums[kFinishRows * kLanes];
  call.sum(row, rows, panel, 1, sums, kLanes, nullptr);
  for (size_t r = 0; r < rows; ++r)
    call.finish(sums + r * call.planes * kLanes, kLanes, y + (row + r) * call.n + column, row + r, column, call.n - column);
}

void sum_group(const Call& call, float* y, size_t first_panel, size_t last_panel, const uint32_t* next) {
  const size_t whole = std::min(last_panel, call.n / kLanes);
  const size_t most = kFinishRows / call.planes;
  for (size_t row = 0; row < call.rows; row += most) {
    const size_t rows = std::min(most, call.rows - row);
    const uint32_t* ahead = row + rows < call.rows ? call.panel_at(first_panel) : next;
    if (first_panel < whole) sum_inside(call, y, first_panel, whole - first_panel, row, rows, ahead);
    if (whole < last_panel) sum_edge(call, y, whole, row, rows);
  }
}

// Few rows read all weights once, in one go; many rows read a group of panels again and again.
void sum_task(const Call& call, float* y, size_t first_panel, size_t last_panel, const uint32_t* next) {
  const size_t group = call.reads_once() ? last_panel - first_panel : panels_of_group(call.words);
  for (size_t panel = first_panel; panel < last_panel; panel += group) {
    const size_t end = std::min(panel + group, last_panel);
    sum_group(call, y, panel, end, end < last_panel ? call.panel_at(end) : next);
  }
}

template <Format F, size_t Planes = 1>
class Linear {
 public:
  static constexpr const char* kName = F == Format::kF32    ? "LinearF32"
                                       : F == Format::kBf16 ? "LinearBf16"
                                       : Planes == 1        ? "LinearInt8"
                                                            : "LinearInt8Rows16";
  static constexpr Port kOutputs[] = {{ort::kFloat}};

  explicit Linear(const Info& info) : layer_(info) {}

  void compute(const Context& context) const {
    const Call call = layer_.prepared(context);
    Tensor shape = context.input(0);
    shape.dims[shape.rank - 1] = static_cast<int64_t>(call.n);
    auto* y = context.output_like<float>(0, shape);
    const size_t panels = (call.n + kLanes - 1) / kLanes, tasks = num_tasks(panels);
    context.parallel_for(tasks, [&](size_t task) {
      sum_task(call, y, task * panels / tasks, (task + 1) * panels / tasks, layer_.successor().start(task, tasks));
    });
  }

 private:
  Layer<F, Planes> layer_;
};

template <Format F>
struct FloatLinear : Linear<F> {
  using Linear<F>::Linear;
  static constexpr Port kInputs[] = {{ort::kFloat}, {element_type(F)}, {ort::kFloat, ort::kOptional}};
};

template <size_t Planes>
struct Int8Linear : Linear<Format::kInt8, Planes> {
  using Linear<Format::kInt8, Planes>::Linear;
  static constexpr Port kInputs[] = {{ort::kFloat}, {ort::kInt8}, {ort::kFloat}, {ort::kFloat, ort::kOptional}};
};

}  // namespace

std::array<const ort::CustomOp*, 4> ops() {
  return {custom_op<FloatLinear<Format::kF32>>(), custom_op<FloatLinear<Format::kBf16>>(), custom_op<Int8Linear<1>>(),
          custom_op<Int8Linear<2>>()};
}

}  // namespace paceline::linear
