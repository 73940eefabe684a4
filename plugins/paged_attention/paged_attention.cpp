// The op PagedAttention: rotate, write new keys and values into their pages, attend.
//
//     q, k, v       [..., T, heads or kv_heads * head_dim] float; or q alone, with all three side by side in its rows
//     kv_pages      [2, num_pages, kv_heads, 16 * head_dim] float, bfloat16 or E4M3, updated in place
//     page_table    [B, max_pages], query_start [B+1], context_len [B], int32
//     cos_sin       [T, rotary_dim] float, sinks [heads] float, both optional
//     k_scale, v_scale   one float each, with E4M3: what the numbers in the pool are to be multiplied with
//
// How the work is cut is plan.h; here is who runs which cut, and the op around it.

#include <cstring>
#include <stdexcept>
#include <vector>

#include "../native/cpu.h"
#include "../native/custom_op.h"
#include "attention.h"
#include "plan.h"

namespace paceline::attention {
namespace {

const Kernels& kernels_for_this_machine() {
#if defined(__x86_64__)
  if (isa() >= Isa::kAvx512) return kAvx512Kernels;
  if (isa() == Isa::kAvx2) return kAvx2Kernels;
#endif
  return kPortableKernels;
}

Work work_of(const Call& call, const Task& task) {
  return {call.q, call.k, call.v, call.q_stride, call.kv_stride, call.cos_sin, call.query, call.out, call.pool,
          call.page_table + task.request * call.max_pages, call.sinks, call.num_pages, task.kv_head,
          task.first_row, task.last_row, call.position(task.request, task.first_row)};
}

// Memory of the running thread; holds at least `floats` until its next call.
float* scratch(size_t floats) {
  static thread_local std::vector<float> memory;
  if (memory.size() < floats) memory.resize(floats);
  return memory.data();
}

size_t partial_floats(const Call& call, const Task& task) {
  return Partial::floats(work_of(call, task).vectors(call.shape), call.shape.head_dim);
}

Partial partial_in(const Call& call, const Task& task, float* memory) {
  return Partial::in(memory, work_of(call, task).vectors(call.shape), call.shape.head_dim);
}

// Attends to all segments of the task, one after the other.
void attend(const Call& call, const Task& task) {
  const Work work = work_of(call, task);
  const size_t floats = partial_floats(call, task);
  float* memory = scratch(2 * floats);
  const Partial sum = partial_in(call, task, memory), next = partial_in(call, task, memory + floats);
  call.kernels.attend_segment(call.shape, work, task.first_segment, sum);
  for (size_t segment = task.first_segment + 1; segment < task.last_segment; ++segment) {
    call.kernels.attend_segment(call.shape, work, segment, next);
    call.kernels.merge(call.shape, work, next, sum);
  }
  call.kernels.finish(call.shape, work, sum);
}

// Partial softmaxes of deep tasks, one a segment, from the parts' threads to those that merge them.
class DeepMemory {
 public:
  DeepMemory(const Call& call, const std::vector<Task>& deep) : call_(call) {
    size_t floats = 0;
    for (const Task& task : deep) {
      first_.push_back(floats);
      floats += partial_floats(call, task) * task.segments();
    }
    memory_.resize(floats);
  }
  Partial at(size_t index, const Task& task, size_t segment) {
    const size_t offset = first_[index] + (segment - task.first_segment) * partial_floats(call_, task);
    return partial_in(call_, task, memory_.data() + offset);
  }

 private:
  const Call& call_;
  std::vector<size_t> first_;
  std::vector<float> memory_;
};

void attend_part(const Call& call, const Task& task, const Part& part, DeepMemory& memory) {
  for (size_t segment = part.first; segment < part.last; ++segment)
    call.kernels.attend_segment(call.shape, work_of(call, task), segment, memory.at(part.task, task, segment));
}

// In the order in which `attend` merges.
void merge_parts(const Call& call, const Task& task, size_t index, DeepMemory& memory) {
  const Work work = work_of(call, task);
  const Partial sum = memory.at(index, task, task.first_segment);
  for (size_t segment = task.first_segment + 1; segment < task.last_segment; ++segment)
    call.kernels.merge(call.shape, work, memory.at(index, task, segment), sum);
  call.kernels.finish(call.shape, work, sum);
}

// The three columns of plan.h.
void compute_all(const Context& context, const Call& call) {
  const Plan plan = make_plan(call);
  const size_t shallow = plan.shallow.size(), deep = plan.deep.size();
  DeepMemory memory(call, plan.deep);
  context.parallel_for(shallow + deep + plan.chunks.size(), [&](size_t index) {
    const Task& task = index < shallow          ? plan.shallow[index]
                       : index < shallow + deep ? plan.deep[index - shallow]
                                                : plan.chunks[index - shallow - deep];
    call.kernels.prepare(call.shape, work_of(call, task));
    if (index < shallow) attend(call, task);
  });
  context.parallel_for(plan.chunks.size() + plan.parts.size(), [&](size_t index) {
    if (index < plan.chunks.size()) return attend(call, plan.chunks[index]);
    const Part& part = plan.parts[index - plan.chunks.size()];
    attend_part(call, plan.deep[part.task], part, memory);
  });
  context.parallel_for(deep, [&](size_t index) { merge_parts(call, plan.deep[index], index, memory); });
}

void require(bool ok, const char* message) {
  if (!ok) throw std::runtime_error(message);
}

// The op's inputs in their order; k and v may both be empty, and so may cos_sin and sinks.
struct Inputs {
  Tensor q, k, v, pool, page_table, query_start, context_len, cos_sin, sinks;

  bool is_packed() const { return k.data == nullptr && v.data == nullptr; }
};

Inputs inputs_of(const Context& context) {
  return {context.input(0), context.input(1), context.input(2), context.input(3), context.input(4),
          context.input(5), context.input(6), context.input(7), context.input(8)};
}

// Every size that the kernels take for granted: a wrong one would read or write behind a tensor.
void check_shapes(const Shape& shape, const Inputs& in) {
  const auto dim = static_cast<int64_t>(shape.head_dim), kv_heads = static_cast<int64_t>(shape.kv_heads);
  const auto heads = static_cast<int64_t>(shape.heads), rotary_dim = static_cast<int64_t>(shape.rotary_dim);
  const int64_t rows = in.q.rank > 0 ? in.q.rows() : 0, requests = in.context_len.count();
  if (in.is_packed()) {
    require(in.q.rank > 0 && in.q.last() == (heads + 2 * kv_heads) * dim,
            "found: q, k and v in one tensor whose last axis is not (heads + 2 kv_heads) * head_dim");
  } else {
    require(in.q.rank > 0 && in.q.last() == heads * dim, "found: q whose last axis is not heads * head_dim");
    for (const Tensor& one : {in.k, in.v})
      require(one.rank > 0 && one.last() == kv_heads * dim && one.rows() == rows,
              "found: k or v that is not [rows of q, kv_heads * head_dim]");
  }
  require(in.pool.rank == 4 && in.pool.dims[0] == 2 && in.pool.dims[2] == kv_heads &&
              in.pool.dims[3] == static_cast<int64_t>(kPageTokens) * dim,
          "found: kv_pages that are not [2, pages, kv_heads, 16 * head_dim]");
  require(in.page_table.rank == 2 && in.page_table.dims[0] == requests && in.query_start.count() == requests + 1,
          "found: page_table, query_start and context_len of different numbers of requests");
  require(requests > 0 || rows == 0, "found: rows of no request");
  require(in.sinks.data == nullptr || in.sinks.count() == heads, "found: sinks that are not one a head");
  require(in.cos_sin.data == nullptr || rotary_dim == 0 ||
              (in.cos_sin.rank > 0 && in.cos_sin.last() == rotary_dim && in.cos_sin.rows() == rows),
          "found: cos_sin that is not [rows, rotary_dim]");
}

// Wrong indices would write outside the pool: everything that comes from outside is looked at, once a step.
void check_tables(const Call& call) {
  require(call.query_start[0] == 0 && call.end(call.requests - 1) == call.rows,
          "found: query_start that does not run from 0 to the number of rows");
  for (size_t request = 0; request < call.requests; ++request) {
    require(call.begin(request) <= call.end(request), "found: query_start that falls");
    require(call.position(request, call.begin(request)) >= 0, "found: context_len smaller than the request's new rows");
    const auto pages = (static_cast<size_t>(call.context_len[request]) + kPageTokens - 1) / kPageTokens;
    require(pages <= call.max_pages, "found: context_len beyond the page table");
    for (size_t i = 0; i < pages; ++i) {
      const int32_t page = call.page_table[request * call.max_pages + i];
      require(page >= 0 && static_cast<size_t>(page) < call.num_pages, "found: a page id outside the pool");
    }
  }
}

template <PoolType Type>
class PagedAttention {
 public:
  static constexpr const char* kName = "PagedAttention";
  static constexpr ort::ElementType kPool = Type == PoolType::kFloat      ? ort::kFloat
                                            : Type == PoolType::kBfloat16 ? ort::kBfloat16
                                                                          : ort::kFloat8;
  static constexpr Port kInputs[] = {{ort::kFloat}, {ort::kFloat, ort::kOptional}, {ort::kFloat, ort::kOptional},
                                     {kPool},       {ort::kInt32}, {ort::kInt32},
                                     {ort::kInt32}, {ort::kFloat, ort::kOptional}, {ort::kFloat, ort::kOptional},
                                     {ort::kFloat, ort::kOptional}, {ort::kFloat, ort::kOptional}};
  static constexpr Port kOutputs[] = {{ort::kFloat}, {kPool}};

  explicit PagedAttention(const Info& info)
      : shape_{static_cast<size_t>(info.integer("heads")), static_cast<size_t>(info.integer("kv_heads")),
               static_cast<size_t>(info.integer("head_dim")), static_cast<size_t>(info.integer_or("rotary_dim", 0)),
               static_cast<int>(info.integer_or("window", 0)), info.real("scale"), info.real_or("softcap", 0),
               info.integer_or("interleaved", 0) != 0, Type} {
    require(info.integer("page_size") == static_cast<int64_t>(kPageTokens), "found: a page_size other than 16");
    require(shape_.head_dim % 16 == 0 && shape_.head_dim <= kMostHeadDim,
            "found: a head_dim that is not a multiple of 16 up to 512");
    require(shape_.kv_heads > 0 && shape_.heads % shape_.kv_heads == 0, "found: heads not a multiple of kv_heads");
    require(shape_.rotary_dim <= shape_.head_dim && shape_.rotary_dim % 2 == 0, "found: a rotary_dim beyond head_dim");
  }

  void compute(const Context& context) const {
    const Inputs in = inputs_of(context);
    check_shapes(shape_, in);
    const size_t q_width = shape_.heads * shape_.head_dim, kv_width = shape_.kv_heads * shape_.head_dim;
    const size_t row_width = static_cast<size_t>(in.q.last());  // of q, or of all three
    Tensor shape = in.q;
    shape.dims[shape.rank - 1] = static_cast<int64_t>(q_width);
    auto* out = context.output_like<float>(0, shape);
    void* pages = context.output_like<char>(1, in.pool);
    if (pages != in.pool.data) std::memcpy(pages, in.pool.data, static_cast<size_t>(in.pool.count()) * element_bytes());
    const auto requests = static_cast<size_t>(in.context_len.count());
    if (requests == 0) return;
    static thread_local std::vector<float> query;
    if (query.size() < static_cast<size_t>(shape.count())) query.resize(static_cast<size_t>(shape.count()));
    const auto* q = in.q.as<float>();
    const auto* k = in.is_packed() ? q + q_width : in.k.as<float>();
    const auto* v = in.is_packed() ? k + kv_width : in.v.as<float>();
    const Shape scaled = with_scales(context.input(9), context.input(10));
    const Call call{scaled, kernels_for_this_machine(), q, k, v, row_width, in.is_packed() ? row_width : kv_width,
                    in.cos_sin.as<float>(), in.sinks.as<float>(), pages, in.page_table.as<int32_t>(),
                    in.query_start.as<int32_t>(), in.context_len.as<int32_t>(), static_cast<size_t>(in.q.rows()), requests,
                    static_cast<size_t>(in.page_table.last()), static_cast<size_t>(in.pool.dims[1]), query.data(), out};
    check_tables(call);
    compute_all(context, call);
  }

 private:
  static constexpr size_t element_bytes() { return Type == PoolType::kFloat ? 4 : Type == PoolType::kBfloat16 ? 2 : 1; }

  // The keys' scale is a factor of every score, so it goes where the scores' own scale is.
  Shape with_scales(const Tensor& key_scale, const Tensor& value_scale) const {
    Shape shape = shape_;
    if (Type != PoolType::kFloat8) return shape;
    require(key_scale.data != nullptr && value_scale.data != nullptr && key_scale.count() == 1 && value_scale.count() == 1,
            "found: an E4M3 pool without k_scale and v_scale of one number each");
    shape.key_scale = *key_scale.as<float>();
    shape.value_scale = *value_scale.as<float>();
    require(shape.key_scale > 0 && shape.value_scale > 0, "found: a scale that is not positive");
    shape.scale *= shape.key_scale;
    return shape;
  }

  Shape shape_;
};

}  // namespace

std::array<const ort::CustomOp*, 3> ops() {
  return {custom_op<PagedAttention<PoolType::kFloat>>(), custom_op<PagedAttention<PoolType::kBfloat16>>(),
          custom_op<PagedAttention<PoolType::kFloat8>>()};
}

}  // namespace paceline::attention
