// The op ResidualNorm: total = x + residual; normalized = total * weight / sqrt(mean(total^2) + epsilon).
//
// One row, one order of sums; rows are shared out only when there are enough of them to pay for it.

#include <cmath>

#include "../native/custom_op.h"
#include "residual_norm.h"

namespace paceline::residual_norm {
namespace {

constexpr size_t kRowsInTask = 16;
constexpr size_t kSums = 16;  // partial sums of squares, added in a fixed order at the end

float sum_of_squares(const float* row, size_t width) {
  float sums[kSums] = {};
  size_t i = 0;
  for (; i + kSums <= width; i += kSums)
    for (size_t lane = 0; lane < kSums; ++lane) sums[lane] += row[i + lane] * row[i + lane];
  for (; i < width; ++i) sums[i % kSums] += row[i] * row[i];
  float total = 0;
  for (float sum : sums) total += sum;
  return total;
}

class ResidualNorm {
 public:
  static constexpr const char* kName = "ResidualNorm";
  static constexpr Port kInputs[] = {{ort::kFloat}, {ort::kFloat}, {ort::kFloat}};
  static constexpr Port kOutputs[] = {{ort::kFloat}, {ort::kFloat}};

  explicit ResidualNorm(const Info& info) : epsilon_(info.real("epsilon")) {}

  void compute(const Context& context) const {
    const Tensor x = context.input(0), residual = context.input(1), weight = context.input(2);
    if (x.count() != residual.count() || weight.count() != x.last())
      throw std::runtime_error("found: x, residual and weight of shapes that do not fit");
    const auto rows = static_cast<size_t>(x.rows()), width = static_cast<size_t>(x.last());
    auto* normalized = context.output_like<float>(0, x);
    auto* total = context.output_like<float>(1, x);
    context.parallel_for((rows + kRowsInTask - 1) / kRowsInTask, [&](size_t task) {
      const size_t end = rows < (task + 1) * kRowsInTask ? rows : (task + 1) * kRowsInTask;
      for (size_t row = task * kRowsInTask; row < end; ++row) {
        const size_t at = row * width;
        normalize(x.as<float>() + at, residual.as<float>() + at, weight.as<float>(), width, normalized + at, total + at);
      }
    });
  }

 private:
  void normalize(const float* x, const float* residual, const float* weight, size_t width, float* normalized,
                 float* total) const {
    for (size_t i = 0; i < width; ++i) total[i] = x[i] + residual[i];
    const float scale = 1.0f / std::sqrt(sum_of_squares(total, width) / static_cast<float>(width) + epsilon_);
    for (size_t i = 0; i < width; ++i) normalized[i] = total[i] * scale * weight[i];
  }

  float epsilon_;
};

}  // namespace

std::array<const ort::CustomOp*, 1> ops() { return {custom_op<ResidualNorm>()}; }

}  // namespace paceline::residual_norm
