// What the plain and the gated linear ops share: a layer's sizes, x in the format of its weights, sums into floats.
//
//     x [rows, K] float -> words [rows * planes, padded_k] -> sums [rows * planes, columns] -> floats [rows, columns]
//
// A plane is one row of words. int8 weights may meet rows of 16-bit steps as two planes, high and low bytes, one behind
// the other: the kernels need not know, and where few rows wait for weights the second plane costs nothing.

#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "../native/custom_op.h"
#include "kernel.h"

namespace paceline::linear {

constexpr size_t kPaddedK = 64;     // plugins/linear/pack.py pads K to this many elements
constexpr size_t kLeastPanels = 8;  // of one task: fewer are not worth a hand-over
constexpr size_t kFinishRows = 48;  // rows summed before they are finished: their sums are still in level 2
constexpr size_t kFewRows = 8;      // rows that every kernel takes in one pass over the weights
constexpr size_t kGroupBytes = size_t{512} << 10;  // of weights that all rows meet before the next: they stay in level 2

constexpr size_t elements_in_word(Format format) { return format == Format::kF32 ? 1 : format == Format::kBf16 ? 2 : 4; }

constexpr ort::ElementType element_type(Format format) {
  return format == Format::kF32 ? ort::kFloat : format == Format::kBf16 ? ort::kBfloat16 : ort::kInt8;
}

inline void require(bool ok, const char* message) {
  if (!ok) throw std::runtime_error(message);
}

// Everything one call needs, in words and rows.
struct Call {
  Format format;
  size_t planes;
  const Kernels& kernels;
  size_t rows, n, words;
  const uint32_t* x;          // [rows * planes, words]
  const uint32_t* weights;    // [panels, words, 16]
  const float* steps;         // int8: [rows], max|x| / 127, or / kRow16Levels
  const float* scale;         // int8: [N]
  const int32_t* correction;  // int8: [N], 128 * sum of the column, since x carries an offset of 128
  const float* bias;          // [N] or null

  const uint32_t* panel_at(size_t panel) const { return weights + panel * words * kWordsPerPanelRow; }

  // Whether sums are more than y has room for, so that they need memory of their own.
  bool is_split() const { return planes > 1; }

  // Whether a kernel takes all rows in one pass over the weights, and sums need no memory of their own.
  bool reads_once() const { return rows <= kFewRows && !is_split(); }

  // Sums of rows x panels, into any memory with `stride` words from plane to plane; `ahead` as `Block::next`.
  void sum(size_t row, size_t num_rows, size_t panel, size_t panels, uint32_t* sums, size_t stride,
           const uint32_t* ahead) const {
    const uint32_t* first = x + row * planes * words;
    kernels.sum(format, {first, words, num_rows * planes, panel_at(panel), words, panels, sums, stride, ahead});
  }

  // One row's sums of the columns from `column` on become floats; `y` may be the sums' own memory where planes == 1.
  void finish(const uint32_t* sums, size_t stride, float* y, size_t row, size_t column, size_t count) const {
    const auto* whole = reinterpret_cast<const int32_t*>(sums);
    if (is_split())
      finish_planes(whole, whole + stride, y, row, column, count);
    else if (format == Format::kInt8)
      finish_int8(whole, y, row, column, count);
    else if (reinterpret_cast<const float*>(sums) != y)
      std::memcpy(y, sums, count * sizeof(float));
    if (bias != nullptr)
      for (size_t i = 0; i < count; ++i) y[i] += bias[column + i];
  }

 private:
  void finish_int8(const int32_t* sums, float* y, size_t row, size_t column, size_t count) const {
    const float step = steps[row];
    for (size_t i = 0; i < count; ++i)
      y[i] = static_cast<float>(sums[i] - correction[column + i]) * step * scale[column + i];
  }

  void finish_planes(const int32_t* high, const int32_t* low, float* y, size_t row, size_t column, size_t count) const {
    const float step = steps[row];
    for (size_t i = 0; i < count; ++i) {
      const int32_t offset = correction[column + i];
      const float sum = static_cast<float>(high[i] - offset) * 256.0f + static_cast<float>(low[i] - offset);
      y[i] = sum * step * scale[column + i];
    }
  }
};

// The layer that runs after this one, as far as the order in which kernels are created tells. Only ever fetched ahead
// from: a wrong guess costs a little time and no more.
struct Successor {
  const uint32_t* weights = nullptr;
  size_t words = 0, panels = 0;

  // Where its task `task` of `tasks` begins to read.
  const uint32_t* start(size_t task, size_t tasks) const {
    return weights == nullptr ? nullptr : weights + task * panels / tasks * words * kWordsPerPanelRow;
  }
};

// Enters `weights` as successor of the layer that was created before on this thread, and returns where the one that will
// be created next is to be entered.
inline std::shared_ptr<Successor> follow_previous(const Successor& weights) {
  static thread_local std::weak_ptr<Successor> previous;
  if (const std::shared_ptr<Successor> entry = previous.lock()) *entry = weights;
  auto mine = std::make_shared<Successor>();
  previous = mine;
  return mine;
}

// One run of neighbouring panels for each processor: a thread that reads on where it stopped has its next panels
// prefetched. Many small tasks from one counter lost for that reason.
inline size_t num_tasks(size_t panels) {
  static const size_t processors = std::max(1u, std::thread::hardware_concurrency());
  return std::max<size_t>(1, std::min(processors, panels / kLeastPanels));
}

// Panels of a group: a multiple of what any kernel takes at a time.
inline size_t panels_of_group(size_t words) {
  constexpr size_t kMultiple = 24;
  const size_t panels = kGroupBytes / (words * kWordsPerPanelRow * sizeof(uint32_t));
  return std::max(kMultiple, panels / kMultiple * kMultiple);
}

// Memory that a thread keeps from call to call; grows, never shrinks.
template <typename T>
T* scratch(std::vector<T>& kept, size_t count) {
  if (kept.size() < count) kept.resize(count);
  return kept.data();
}

// One node's layer. Inputs: x, weight, (int8: scale,) bias if any.
template <Format F, size_t Planes = 1>
class Layer {
  static_assert(Planes == 1 || F == Format::kInt8, "only whole numbers can be split");

 public:
  explicit Layer(const Info& info)
      : k_(static_cast<size_t>(info.integer("in_features"))),
        n_(static_cast<size_t>(info.integer("out_features"))),
        padded_k_((k_ + kPaddedK - 1) / kPaddedK * kPaddedK),
        words_(padded_k_ / elements_in_word(F)) {
    const Tensor weight = info.constant_input(1);
    if constexpr (F == Format::kInt8) correction_ = corrections(weight);
    successor_ = follow_previous({weight.as<uint32_t>(), words_, (n_ + kLanes - 1) / kLanes});
  }

  size_t columns() const { return n_; }
  const Successor& successor() const { return *successor_; }

  // x in the weights' format, and where everything is. Valid until this thread prepares the next call.
  Call prepared(const Context& context) const {
    constexpr size_t kBias = F == Format::kInt8 ? 3 : 2;
    const Tensor x = context.input(0), weight = context.input(1), bias = context.input(kBias);
    const Tensor scale = F == Format::kInt8 ? context.input(2) : Tensor{};
    require(x.rank > 0 && x.last() == static_cast<int64_t>(k_), "found: x whose last axis is not in_features");
    check_weight(weight);
    require(F != Format::kInt8 || holds_a_column_each(scale), "found: a scale that is not one a column");
    require(bias.data == nullptr || holds_a_column_each(bias), "found: a bias that is not one a column");
    static thread_local std::vector<uint32_t> kept_words;
    static thread_local std::vector<float> kept_steps;
    const auto rows = static_cast<size_t>(x.rows());
    uint32_t* words = scratch(kept_words, rows * Planes * words_);
    float* steps = scratch(kept_steps, rows);
    const Call call{F, Planes, kernels_for_this_machine(), rows, n_, words_, words, weight.as<uint32_t>(), steps,
                    scale.as<float>(), correction_.data(), bias.as<float>()};
    convert(context, call, x.as<float>(), words, steps);
    return call;
  }

 private:
  bool holds_a_column_each(const Tensor& tensor) const { return tensor.count() == static_cast<int64_t>(n_); }

  void check_weight(const Tensor& weight) const {
    const auto panels = static_cast<int64_t>((n_ + kLanes - 1) / kLanes), words = static_cast<int64_t>(words_);
    require(weight.rank >= 2 && weight.dims[0] == panels && weight.dims[1] == words &&
                weight.count() == panels * words * static_cast<int64_t>(kLanes * elements_in_word(F)),
            "found: a weight that is not packed for in_features x out_features");
  }

  // 128 * sum of each column, taken off again since x is shifted from [-127, 127] to [1, 255].
  std::vector<int32_t> corrections(const Tensor& weight) const {
    require(weight.data != nullptr, "found: a weight that is not constant");
    check_weight(weight);
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
        steps[row] = convert_row(call, x + row * k_, words + row * Planes * words_);
    });
  }

  // Returns the row's quantisation step.
  float convert_row(const Call& call, const float* x, uint32_t* words) const {
    constexpr float kLevels = Planes == 2 ? kRow16Levels : kRow8Levels;
    const float largest = F == Format::kInt8 ? call.kernels.max_abs(x, k_) : 0;
    const float inverse_step = largest > 0 ? kLevels / largest : 0.0f;
    if constexpr (Planes == 2)
      call.kernels.split_row(x, k_, padded_k_, inverse_step, words, words + words_);
    else
      call.kernels.convert_row(F, x, k_, padded_k_, inverse_step, words);
    return largest / kLevels;
  }

  size_t k_, n_, padded_k_, words_;
  std::vector<int32_t> correction_;
  std::shared_ptr<Successor> successor_;
};

}  // namespace paceline::linear
