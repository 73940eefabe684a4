// The ops LinearF32, LinearBf16 and LinearInt8: convert x once, share out the panels, finish the sums.
//
//     x [rows, K] float -> words [rows, padded_k] -> sums [rows, N] (where y will lie) -> y [rows, N] float
//
// The sums are written into y's own memory, since both are 32 bits wide; only a last panel that hangs over N goes
// through a buffer of its own.

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "../native/cpu.h"
#include "../native/custom_op.h"
#include "kernel.h"
#include "linear.h"

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

constexpr size_t kPaddedK = 64;        // plugins/linear/pack.py pads K to this many elements
constexpr size_t kLeastPanels = 8;     // of one task: fewer are not worth a hand-over
constexpr size_t kFinishRows = 48;     // rows summed before they are finished: their sums are still in level 2

size_t elements_in_word(Format format) { return format == Format::kF32 ? 1 : format == Format::kBf16 ? 2 : 4; }

// Everything one call needs, in words and rows.
struct Call {
  Format format;
  const Kernels& kernels;
  size_t rows, n, words;
  const uint32_t* x;          // [rows, words]
  const uint32_t* weights;    // [panels, words, 16]
  const float* steps;         // int8: [rows], max|x| / 127
  const float* scale;         // int8: [N]
  const int32_t* correction;  // int8: [N], 128 * sum of the column, since x carries an offset of 128
  const float* bias;          // [N] or null
  float* y;                   // [rows, N]
};

// Sums become results in place; `row` and `column` say where in y they lie.
void finish_int8(const Call& call, const int32_t* sums, float* y, size_t row, size_t column, size_t count) {
  const float step = call.steps[row];
  const float* scale = call.scale + column;
  const int32_t* correction = call.correction + column;
  for (size_t i = 0; i < count; ++i) y[i] = static_cast<float>(sums[i] - correction[i]) * step * scale[i];
}

void finish_row(const Call& call, uint32_t* sums, float* y, size_t row, size_t column, size_t count) {
  if (call.format == Format::kInt8)
    finish_int8(call, reinterpret_cast<const int32_t*>(sums), y, row, column, count);
  else if (reinterpret_cast<float*>(sums) != y)
    std::memcpy(y, sums, count * sizeof(float));
  if (call.bias != nullptr)
    for (size_t i = 0; i < count; ++i) y[i] += call.bias[column + i];
}

// Panels that lie whole inside y.
void sum_inside(const Call& call, size_t first_panel, size_t panels, size_t row, size_t rows) {
  const size_t column = first_panel * kLanes;
  auto* sums = reinterpret_cast<uint32_t*>(call.y + row * call.n + column);
  call.kernels.sum(call.format, {call.x + row * call.words, call.words, rows,
                                 call.weights + first_panel * call.words * kWordsPerPanelRow, call.words, panels, sums,
                                 call.n});
  if (call.format != Format::kInt8 && call.bias == nullptr) return;
  for (size_t r = 0; r < rows; ++r)
    finish_row(call, sums + r * call.n, call.y + (row + r) * call.n + column, row + r, column, panels * kLanes);
}

// The one panel that hangs over N.
void sum_edge(const Call& call, size_t panel, size_t row, size_t rows) {
  const size_t column = panel * kLanes;
  uint32_t sums[kFinishRows * kLanes];
  call.kernels.sum(call.format, {call.x + row * call.words, call.words, rows,
                                 call.weights + panel * call.words * kWordsPerPanelRow, call.words, 1, sums, kLanes});
  for (size_t r = 0; r < rows; ++r)
    finish_row(call, sums + r * kLanes, call.y + (row + r) * call.n + column, row + r, column, call.n - column);
}

void sum_task(const Call& call, size_t first_panel, size_t last_panel) {
  const size_t whole = std::min(last_panel, call.n / kLanes);
  for (size_t row = 0; row < call.rows; row += kFinishRows) {
    const size_t rows = std::min(kFinishRows, call.rows - row);
    if (first_panel < whole) sum_inside(call, first_panel, whole - first_panel, row, rows);
    if (whole < last_panel) sum_edge(call, whole, row, rows);
  }
}

// One run of neighbouring panels for each processor: a thread that reads on where it stopped has its next panels
// prefetched. Many small tasks from one counter lost for that reason.
size_t num_tasks(size_t panels) {
  static const size_t processors = std::max(1u, std::thread::hardware_concurrency());
  return std::max<size_t>(1, std::min(processors, panels / kLeastPanels));
}

// Memory that a thread keeps from call to call; grows, never shrinks.
template <typename T>
T* scratch(std::vector<T>& kept, size_t count) {
  if (kept.size() < count) kept.resize(count);
  return kept.data();
}

template <Format F>
class Linear {
 public:
  explicit Linear(const Info& info)
      : k_(static_cast<size_t>(info.integer("in_features"))),
        n_(static_cast<size_t>(info.integer("out_features"))),
        padded_k_((k_ + kPaddedK - 1) / kPaddedK * kPaddedK),
        words_(padded_k_ / elements_in_word(F)) {
    if constexpr (F == Format::kInt8) correction_ = corrections(info.constant_input(1));
  }

  void compute(const Context& context) const {
    const Tensor x = context.input(0), weight = context.input(1);
    check(x, weight);
    constexpr size_t kBias = F == Format::kInt8 ? 3 : 2;
    Tensor y = x;
    y.dims[y.rank - 1] = static_cast<int64_t>(n_);
    const auto rows = static_cast<size_t>(x.rows());
    static thread_local std::vector<uint32_t> kept_words;
    static thread_local std::vector<float> kept_steps;
    uint32_t* words = scratch(kept_words, rows * words_);
    float* steps = scratch(kept_steps, rows);
    const Call call{F, kernels_for_this_machine(), rows, n_, words_, words, weight.as<uint32_t>(), steps,
                    F == Format::kInt8 ? context.input(2).as<float>() : nullptr, correction_.data(),
                    context.input(kBias).as<float>(), context.output_like<float>(0, y)};
    convert(context, call, x.as<float>(), words, steps);
    share_out(context, call);
  }

 private:
  void check(const Tensor& x, const Tensor& weight) const {
    if (x.rank == 0 || x.last() != static_cast<int64_t>(k_)) throw std::runtime_error("found: x whose last axis is not in_features");
    const auto panels = static_cast<int64_t>((n_ + kLanes - 1) / kLanes);
    if (weight.rank < 2 || weight.dims[0] != panels || weight.dims[1] != static_cast<int64_t>(words_))
      throw std::runtime_error("found: a weight that is not packed for in_features x out_features");
  }

  // 128 * sum of each column, taken off again since x is shifted from [-127, 127] to [1, 255].
  std::vector<int32_t> corrections(const Tensor& weight) const {
    if (weight.data == nullptr) throw std::runtime_error("found: a weight that is not constant");
    std::vector<int32_t> sums((n_ + kLanes - 1) / kLanes * kLanes, 0);
    const auto* bytes = weight.as<int8_t>();
    for (size_t panel = 0; panel * kLanes < n_; ++panel)
      for (size_t word = 0; word < words_; ++word)
        for (size_t i = 0; i < 64; ++i) sums[panel * kLanes + i / 4] += 128 * *bytes++;
    return sums;
  }

  void convert(const Context& context, const Call& call, const float* x, uint32_t* words, float* steps) const {
    constexpr size_t kRowsInTask = 32;
    context.parallel_for((call.rows + kRowsInTask - 1) / kRowsInTask, [&](size_t task) {
      const size_t end = std::min(call.rows, (task + 1) * kRowsInTask);
      for (size_t row = task * kRowsInTask; row < end; ++row)
        steps[row] = convert_row(call, x + row * k_, words + row * words_);
    });
  }

  // Returns the row's quantisation step.
  float convert_row(const Call& call, const float* x, uint32_t* words) const {
    const float largest = F == Format::kInt8 ? call.kernels.max_abs(x, k_) : 0;
    call.kernels.convert_row(F, x, k_, padded_k_, largest > 0 ? 127.0f / largest : 0.0f, words);
    return largest / 127.0f;
  }

  void share_out(const Context& context, const Call& call) const {
    const size_t panels = (n_ + kLanes - 1) / kLanes, tasks = num_tasks(panels);
    context.parallel_for(tasks, [&](size_t task) {
      sum_task(call, task * panels / tasks, (task + 1) * panels / tasks);
    });
  }

  size_t k_, n_, padded_k_, words_;
  std::vector<int32_t> correction_;
};

struct LinearF32 : Linear<Format::kF32> {
  using Linear::Linear;
  static constexpr const char* kName = "LinearF32";
  static constexpr Port kInputs[] = {{ort::kFloat}, {ort::kFloat}, {ort::kFloat, ort::kOptional}};
  static constexpr Port kOutputs[] = {{ort::kFloat}};
};

struct LinearBf16 : Linear<Format::kBf16> {
  using Linear::Linear;
  static constexpr const char* kName = "LinearBf16";
  static constexpr Port kInputs[] = {{ort::kFloat}, {ort::kBfloat16}, {ort::kFloat, ort::kOptional}};
  static constexpr Port kOutputs[] = {{ort::kFloat}};
};

struct LinearInt8 : Linear<Format::kInt8> {
  using Linear::Linear;
  static constexpr const char* kName = "LinearInt8";
  static constexpr Port kInputs[] = {{ort::kFloat}, {ort::kInt8}, {ort::kFloat}, {ort::kFloat, ort::kOptional}};
  static constexpr Port kOutputs[] = {{ort::kFloat}};
};

}  // namespace

std::array<const ort::CustomOp*, 3> ops() {
  return {custom_op<LinearF32>(), custom_op<LinearBf16>(), custom_op<LinearInt8>()};
}

}  // namespace paceline::linear
