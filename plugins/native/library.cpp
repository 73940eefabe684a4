// What onnxruntime calls when it loads the library: one domain with all our ops, in one visible table.

#include "../linear/linear.h"
#include "../paged_attention/attention.h"
#include "../residual_norm/residual_norm.h"
#include "../swiglu/swiglu.h"
#include "custom_op.h"
#include "ort_abi.h"

namespace paceline {
namespace {

template <typename Ops>
ort::Status* add_all(const ort::Api* api, ort::CustomOpDomain* domain, const Ops& ops) {
  for (const ort::CustomOp* op : ops)
    if (ort::Status* status = ort::kDomainAdd(api, domain, op)) return status;
  return nullptr;
}

ort::Status* add_ops(const ort::Api* api, ort::CustomOpDomain* domain) {
  if (ort::Status* status = add_all(api, domain, linear::ops())) return status;
  if (ort::Status* status = add_all(api, domain, linear::gated_ops())) return status;
  if (ort::Status* status = add_all(api, domain, attention::ops())) return status;
  if (ort::Status* status = add_all(api, domain, residual_norm::ops())) return status;
  return add_all(api, domain, swiglu::ops());
}

}  // namespace
}  // namespace paceline

extern "C" paceline::ort::Status* RegisterCustomOps(paceline::ort::SessionOptions* options,
                                                    const paceline::ort::ApiBase* base) {
  using namespace paceline;
  const ort::Api* api = base->get_api(ort::kApiVersion);
  if (api == nullptr) {
    // Without a table of functions there is no status to make; any table of an older version can make one.
    const ort::Api* oldest = base->get_api(1);
    return ort::kCreateStatus(oldest, ort::kFail,
                              "found: an onnxruntime older than 1.16; needed: its C API version 16; do: pip install -U "
                              "onnxruntime");
  }
  ort::CustomOpDomain* domain = nullptr;
  if (ort::Status* status = ort::kCreateCustomOpDomain(api, "paceline", &domain)) return status;
  if (ort::Status* status = add_ops(api, domain)) return status;
  return ort::kAddDomain(api, options, domain);
}
