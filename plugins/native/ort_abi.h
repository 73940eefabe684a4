// The part of onnxruntime's C ABI that we call, and nothing else.
//
// The Python wheel ships no headers. The ABI only ever grows at its end, so a member's place in the table of functions
// never changes: we name the places that we use and cast on call. The names and places are those of the public C API,
// version 16 (onnxruntime 1.16), the first with KernelContext_ParallelFor.

#pragma once

#include <cstddef>
#include <cstdint>

namespace paceline::ort {

constexpr uint32_t kApiVersion = 16;

// Opaque to us.
struct Status;
struct KernelInfo;
struct KernelContext;
struct Value;
struct TypeAndShape;
struct CustomOpDomain;
struct SessionOptions;

enum ElementType : int { kUndefined = 0, kFloat = 1, kInt8 = 3, kInt32 = 6, kInt64 = 7, kBfloat16 = 16, kFloat8 = 17 };
enum Characteristic : int { kRequired = 0, kOptional = 1 };
enum ErrorCode : int { kFail = 1 };

// A function table, read by place.
struct Api {
  void* member[1];
};

struct ApiBase {
  const Api* (*get_api)(uint32_t version);
  const char* (*get_version)();
};

// One callable place of the table: `kGetInput(api, context, 0, &value)`.
template <size_t Place, typename Result, typename... Args>
struct Member {
  Result operator()(const Api* api, Args... args) const {
    return reinterpret_cast<Result (*)(Args...)>(api->member[Place])(args...);
  }
};

inline constexpr Member<0, Status*, int, const char*> kCreateStatus{};
inline constexpr Member<2, const char*, const Status*> kGetErrorMessage{};
inline constexpr Member<26, Status*, const char*, CustomOpDomain**> kCreateCustomOpDomain{};
inline constexpr Member<27, Status*, CustomOpDomain*, const struct CustomOp*> kDomainAdd{};
inline constexpr Member<28, Status*, SessionOptions*, CustomOpDomain*> kAddDomain{};
inline constexpr Member<51, Status*, Value*, void**> kTensorData{};
inline constexpr Member<60, Status*, const TypeAndShape*, ElementType*> kElementType{};
inline constexpr Member<61, Status*, const TypeAndShape*, size_t*> kDimensionCount{};
inline constexpr Member<62, Status*, const TypeAndShape*, int64_t*, size_t> kDimensions{};
inline constexpr Member<65, Status*, const Value*, TypeAndShape**> kTypeAndShape{};
inline constexpr Member<85, Status*, const KernelInfo*, const char*, float*> kAttributeFloat{};
inline constexpr Member<86, Status*, const KernelInfo*, const char*, int64_t*> kAttributeInt{};
inline constexpr Member<88, Status*, const KernelContext*, size_t*> kInputCount{};
inline constexpr Member<90, Status*, const KernelContext*, size_t, const Value**> kGetInput{};
inline constexpr Member<91, Status*, KernelContext*, size_t, const int64_t*, size_t, Value**> kGetOutput{};
inline constexpr Member<93, void, Status*> kReleaseStatus{};
inline constexpr Member<99, void, TypeAndShape*> kReleaseTypeAndShape{};
inline constexpr Member<249, Status*, const KernelInfo*, size_t, int*, const Value**> kConstantInput{};
inline constexpr Member<274, Status*, const KernelContext*, void (*)(void*, size_t), size_t, size_t, void*>
    kParallelFor{};

// What onnxruntime asks of a custom op; the order of the members is the ABI.
struct CustomOp {
  uint32_t version;
  void* (*create_kernel)(const CustomOp*, const Api*, const KernelInfo*);
  const char* (*name)(const CustomOp*);
  const char* (*execution_provider)(const CustomOp*);
  ElementType (*input_type)(const CustomOp*, size_t);
  size_t (*input_count)(const CustomOp*);
  ElementType (*output_type)(const CustomOp*, size_t);
  size_t (*output_count)(const CustomOp*);
  void (*compute)(void*, KernelContext*);
  void (*destroy)(void*);
  Characteristic (*input_characteristic)(const CustomOp*, size_t);
  Characteristic (*output_characteristic)(const CustomOp*, size_t);
  int (*input_memory)(const CustomOp*, size_t);
  int (*variadic_input_min)(const CustomOp*);
  int (*variadic_input_same)(const CustomOp*);
  int (*variadic_output_min)(const CustomOp*);
  int (*variadic_output_same)(const CustomOp*);
  Status* (*create_kernel_v2)(const CustomOp*, const Api*, const KernelInfo*, void**);
  Status* (*compute_v2)(void*, KernelContext*);
  Status* (*infer_shape)(const CustomOp*, void*);
  int (*start_version)(const CustomOp*);
  int (*end_version)(const CustomOp*);
};

}  // namespace paceline::ort
