// From a plain C++ struct to an onnxruntime custom op.
//
// An op is a struct with
//     static constexpr const char* kName;
//     static constexpr Port kInputs[], kOutputs[];
//     explicit Op(const Info&);        reads attributes and constant inputs, once a node
//     void compute(const Context&);    runs a step; may throw
// and `custom_op<Op>()` is what library.cpp hands to onnxruntime. Several structs may share one kName and differ in
// element types. Exceptions become statuses here and nowhere else.

#pragma once

#include <array>
#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <iterator>
#include <stdexcept>
#include <string>

#include "ort_abi.h"

namespace paceline {

struct Port {
  ort::ElementType type;
  ort::Characteristic characteristic = ort::kRequired;
};

// A view of one tensor; the data belong to onnxruntime.
struct Tensor {
  static constexpr size_t kMaxRank = 8;

  void* data = nullptr;
  std::array<int64_t, kMaxRank> dims{};
  size_t rank = 0;

  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
  int64_t last() const { return dims[rank - 1]; }
  int64_t count() const {
    int64_t product = 1;
    for (size_t i = 0; i < rank; ++i) product *= dims[i];
    return product;
  }
  // Rows when all axes but the last are flattened.
  int64_t rows() const { return last() == 0 ? 0 : count() / last(); }
};

// Throws when onnxruntime said no.
inline void require_ok(const ort::Api* api, ort::Status* status) {
  if (status == nullptr) return;
  std::string message = ort::kGetErrorMessage(api, status);
  ort::kReleaseStatus(api, status);
  throw std::runtime_error(message);
}

inline Tensor tensor_from_value(const ort::Api* api, const ort::Value* value) {
  Tensor tensor;
  ort::TypeAndShape* shape = nullptr;
  require_ok(api, ort::kTensorData(api, const_cast<ort::Value*>(value), &tensor.data));
  require_ok(api, ort::kTypeAndShape(api, value, &shape));
  ort::Status* status = ort::kDimensionCount(api, shape, &tensor.rank);
  if (status == nullptr && tensor.rank <= Tensor::kMaxRank)
    status = ort::kDimensions(api, shape, tensor.dims.data(), tensor.rank);
  ort::kReleaseTypeAndShape(api, shape);
  require_ok(api, status);
  if (tensor.rank > Tensor::kMaxRank) throw std::runtime_error("found: a tensor of more than 8 axes");
  return tensor;
}

// One node's attributes and constant inputs, while its kernel is created.
class Info {
 public:
  Info(const ort::Api* api, const ort::KernelInfo* info) : api_(api), info_(info) {}

  int64_t integer(const char* name) const {
    int64_t value = 0;
    require_ok(api_, ort::kAttributeInt(api_, info_, name, &value));
    return value;
  }
  float real(const char* name) const {
    float value = 0;
    require_ok(api_, ort::kAttributeFloat(api_, info_, name, &value));
    return value;
  }
  // An attribute that a graph may leave out.
  int64_t integer_or(const char* name, int64_t otherwise) const {
    int64_t value = 0;
    ort::Status* status = ort::kAttributeInt(api_, info_, name, &value);
    if (status == nullptr) return value;
    ort::kReleaseStatus(api_, status);
    return otherwise;
  }
  float real_or(const char* name, float otherwise) const {
    float value = 0;
    ort::Status* status = ort::kAttributeFloat(api_, info_, name, &value);
    if (status == nullptr) return value;
    ort::kReleaseStatus(api_, status);
    return otherwise;
  }
  // An input that is an initializer of the graph; empty (no data) where it is not.
  Tensor constant_input(size_t index) const {
    int is_constant = 0;
    const ort::Value* value = nullptr;
    require_ok(api_, ort::kConstantInput(api_, info_, index, &is_constant, &value));
    return is_constant && value != nullptr ? tensor_from_value(api_, value) : Tensor{};
  }

 private:
  const ort::Api* api_;
  const ort::KernelInfo* info_;
};

// One call of a kernel: its inputs, its outputs, and onnxruntime's threads.
class Context {
 public:
  Context(const ort::Api* api, ort::KernelContext* context) : api_(api), context_(context) {
    require_ok(api_, ort::kInputCount(api_, context_, &input_count_));
  }

  // Empty (no data) for an optional input that is left out.
  Tensor input(size_t index) const {
    if (index >= input_count_) return {};
    const ort::Value* value = nullptr;
    require_ok(api_, ort::kGetInput(api_, context_, index, &value));
    return value == nullptr ? Tensor{} : tensor_from_value(api_, value);
  }
  template <typename T>
  T* output(size_t index, const int64_t* dims, size_t rank) const {
    ort::Value* value = nullptr;
    void* data = nullptr;
    require_ok(api_, ort::kGetOutput(api_, context_, index, dims, rank, &value));
    require_ok(api_, ort::kTensorData(api_, value, &data));
    return static_cast<T*>(data);
  }
  template <typename T>
  T* output_like(size_t index, const Tensor& tensor) const {
    return output<T>(index, tensor.dims.data(), tensor.rank);
  }

  // Runs task(0) .. task(total - 1) on onnxruntime's own pool, in any order; returns when all are done.
  template <typename Task>
  void parallel_for(size_t total, Task&& task) const {
    if (total <= 1) {
      if (total == 1) task(0);
      return;
    }
    auto call = [](void* data, size_t index) { (*static_cast<std::remove_reference_t<Task>*>(data))(index); };
    require_ok(api_, ort::kParallelFor(api_, context_, call, total, 0, &task));
  }

 private:
  const ort::Api* api_;
  ort::KernelContext* context_;
  size_t input_count_ = 0;
};

namespace detail {

template <typename Op>
struct Instance {
  const ort::Api* api;
  Op op;
};

inline ort::Status* status_from(const ort::Api* api, const char* op, const char* what) {
  return ort::kCreateStatus(api, ort::kFail, (std::string("paceline::") + op + ": " + what).c_str());
}

template <typename Op>
ort::Status* create(const ort::CustomOp*, const ort::Api* api, const ort::KernelInfo* info, void** kernel) {
  try {
    *kernel = new Instance<Op>{api, Op(Info(api, info))};
    return nullptr;
  } catch (const std::exception& error) {
    return status_from(api, Op::kName, error.what());
  }
}

template <typename Op>
ort::Status* compute(void* kernel, ort::KernelContext* context) {
  auto* instance = static_cast<Instance<Op>*>(kernel);
  try {
    instance->op.compute(Context(instance->api, context));
    return nullptr;
  } catch (const std::exception& error) {
    return status_from(instance->api, Op::kName, error.what());
  }
}

}  // namespace detail

// The table of callbacks that stands for Op; lives as long as the library.
template <typename Op>
const ort::CustomOp* custom_op() {
  using Self = const ort::CustomOp*;
  static const ort::CustomOp op = [] {
    ort::CustomOp table{};
    table.version = ort::kApiVersion;
    table.name = [](Self) { return Op::kName; };
    table.execution_provider = [](Self) -> const char* { return nullptr; };
    table.input_type = [](Self, size_t i) { return Op::kInputs[i].type; };
    table.input_count = [](Self) { return std::size(Op::kInputs); };
    table.output_type = [](Self, size_t i) { return Op::kOutputs[i].type; };
    table.output_count = [](Self) { return std::size(Op::kOutputs); };
    table.destroy = [](void* kernel) { delete static_cast<detail::Instance<Op>*>(kernel); };
    table.input_characteristic = [](Self, size_t i) { return Op::kInputs[i].characteristic; };
    table.output_characteristic = [](Self, size_t i) { return Op::kOutputs[i].characteristic; };
    table.input_memory = [](Self, size_t) { return 0; };
    table.variadic_input_min = table.variadic_output_min = [](Self) { return 0; };
    table.variadic_input_same = table.variadic_output_same = [](Self) { return 0; };
    table.create_kernel_v2 = detail::create<Op>;
    table.compute_v2 = detail::compute<Op>;
    table.start_version = [](Self) { return 1; };
    table.end_version = [](Self) { return 0x7fffffff; };
    return table;
  }();
  return &op;
}

}  // namespace paceline
