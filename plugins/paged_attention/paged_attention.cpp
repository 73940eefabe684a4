// The op PagedAttention: rotate, write new keys and values into their pages, attend.
//
//     q, k, v       [..., T, heads or kv_heads * head_dim] float
//     kv_pages      [2, num_pages, kv_heads, 16 * head_dim] float or bfloat16, updated in place
//     page_table    [B, max_pages], query_start [B+1], context_len [B], int32
//     cos_sin       [T, rotary_dim] float, sinks [heads] float, both optional
//
// A (request, kv head) owns its part of the pages: one task rotates and writes it, and attends to it at once when the
// request has few rows. Requests with many rows (prefill) are attended to in a second round, in chunks of rows, so that
// all threads have work. Other requests' pages are only read where they are shared, and those are not written.

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "../native/cpu.h"
#include "../native/custom_op.h"
#include "attention.h"

namespace paceline::attention {
namespace {

constexpr size_t kChunkRows = 32;  // rows of one prefill task

Attend attend_for_this_machine() {
#if defined(__x86_64__)
  if (isa() >= Isa::kAvx512) return kAvx512Attend;
  if (isa() == Isa::kAvx2) return kAvx2Attend;
#endif
  return kPortableAttend;
}

uint16_t bf16_from_float(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void put(float* to, float value) { *to = value; }
void put(uint16_t* to, float value) { *to = bf16_from_float(value); }

// One head's vector; the first rotary_dim elements turn, the rest are copied. cos_sin is one row: cosines, then sines.
void rotate(const Shape& shape, const float* from, const float* cos_sin, float* to) {
  if (cos_sin == nullptr || shape.rotary_dim == 0) {
    std::memcpy(to, from, shape.head_dim * sizeof(float));
    return;
  }
  const size_t half = shape.rotary_dim / 2;
  const float *cosine = cos_sin, *sine = cos_sin + half;
  const size_t step = shape.interleaved ? 2 : 1, other = shape.interleaved ? 1 : half;
  for (size_t i = 0; i < half; ++i) {
    const float a = from[i * step], b = from[i * step + other];
    to[i * step] = a * cosine[i] - b * sine[i];
    to[i * step + other] = b * cosine[i] + a * sine[i];
  }
  std::copy(from + shape.rotary_dim, from + shape.head_dim, to + shape.rotary_dim);
}

// One call's tensors.
struct Call {
  const Shape& shape;
  const float *q, *k, *v, *cos_sin, *sinks;
  void* pool;
  const int32_t *page_table, *query_start, *context_len;
  size_t rows, requests, max_pages, num_pages;
  float* rotated;  // [T, heads * head_dim]
  float* out;

  size_t begin(size_t request) const { return static_cast<size_t>(query_start[request]); }
  size_t end(size_t request) const { return static_cast<size_t>(query_start[request + 1]); }
  int first_position(size_t request) const {
    return context_len[request] - static_cast<int>(end(request) - begin(request));
  }
  const float* cos_sin_row(size_t row) const { return cos_sin == nullptr ? nullptr : cos_sin + row * shape.rotary_dim; }
};

template <typename Element>
void write_row(const Call& call, size_t request, size_t kv_head, size_t row) {
  const Shape& shape = call.shape;
  const auto position = static_cast<size_t>(call.first_position(request)) + row - call.begin(request);
  const auto page = static_cast<size_t>(call.page_table[request * call.max_pages + position / kPageTokens]);
  const size_t slot = position % kPageTokens, head_elements = kPageTokens * shape.head_dim;
  Element* keys = static_cast<Element*>(call.pool) + (page * shape.kv_heads + kv_head) * head_elements;
  Element* values = keys + call.num_pages * shape.kv_heads * head_elements + slot * shape.head_dim;
  const size_t offset = (row * shape.kv_heads + kv_head) * shape.head_dim;
  float key[512];
  rotate(shape, call.k + offset, call.cos_sin_row(row), key);
  for (size_t d = 0; d < shape.head_dim; ++d) put(keys + d * kPageTokens + slot, key[d]);
  for (size_t d = 0; d < shape.head_dim; ++d) put(values + d, call.v[offset + d]);
}

// New keys and values of one kv head into the pages, its query heads into `rotated`.
void prepare(const Call& call, size_t request, size_t kv_head) {
  const Shape& shape = call.shape;
  const size_t group = shape.heads / shape.kv_heads;
  for (size_t row = call.begin(request); row < call.end(request); ++row) {
    if (shape.pool_type == PoolType::kFloat)
      write_row<float>(call, request, kv_head, row);
    else
      write_row<uint16_t>(call, request, kv_head, row);
    for (size_t g = 0; g < group; ++g) {
      const size_t offset = (row * shape.heads + kv_head * group + g) * shape.head_dim;
      rotate(shape, call.q + offset, call.cos_sin_row(row), call.rotated + offset);
    }
  }
}

void attend_chunk(const Call& call, size_t request, size_t kv_head, size_t first_row, size_t last_row) {
  static thread_local std::vector<float> scratch;
  const auto context = static_cast<size_t>(call.context_len[request]);
  const size_t needed = kTileQueries * ((context + kPageTokens - 1) / kPageTokens * kPageTokens);
  if (scratch.size() < needed) scratch.resize(needed);
  const Work work{call.rotated, call.out, call.pool, call.page_table + request * call.max_pages, call.sinks,
                  call.num_pages, kv_head, call.begin(request), first_row, last_row, call.first_position(request)};
  attend_for_this_machine()(call.shape, work, scratch.data());
}

bool has_many_rows(const Call& call, size_t request) { return call.end(request) - call.begin(request) > kChunkRows; }

struct Chunk {
  size_t request, kv_head, first_row, last_row;
};

std::vector<Chunk> chunks_of_long_requests(const Call& call) {
  std::vector<Chunk> chunks;
  for (size_t request = 0; request < call.requests; ++request) {
    if (!has_many_rows(call, request)) continue;
    // The last chunk sees the most keys: it goes first, so that threads finish together.
    for (size_t end = call.end(request); end > call.begin(request);) {
      const size_t first = end - std::min(kChunkRows, end - call.begin(request));
      for (size_t head = 0; head < call.shape.kv_heads; ++head) chunks.push_back({request, head, first, end});
      end = first;
    }
  }
  return chunks;
}

void compute_all(const Context& context, const Call& call) {
  const size_t kv_heads = call.shape.kv_heads;
  context.parallel_for(call.requests * kv_heads, [&](size_t task) {
    const size_t request = task / kv_heads, kv_head = task % kv_heads;
    prepare(call, request, kv_head);
    if (!has_many_rows(call, request)) attend_chunk(call, request, kv_head, call.begin(request), call.end(request));
  });
  const std::vector<Chunk> chunks = chunks_of_long_requests(call);
  context.parallel_for(chunks.size(), [&](size_t task) {
    const Chunk& chunk = chunks[task];
    attend_chunk(call, chunk.request, chunk.kv_head, chunk.first_row, chunk.last_row);
  });
}

void require(bool ok, const char* message) {
  if (!ok) throw std::runtime_error(message);
}

// Wrong indices would write outside the pool: everything that comes from outside is looked at, once a step.
void check_tables(const Call& call) {
  require(call.query_start[0] == 0 && call.end(call.requests - 1) == call.rows,
          "found: query_start that does not run from 0 to the number of rows");
  for (size_t request = 0; request < call.requests; ++request) {
    require(call.begin(request) <= call.end(request), "found: query_start that falls");
    require(call.first_position(request) >= 0, "found: context_len smaller than the request's new rows");
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
  static constexpr ort::ElementType kPool = Type == PoolType::kFloat ? ort::kFloat : ort::kBfloat16;
  static constexpr Port kInputs[] = {{ort::kFloat}, {ort::kFloat}, {ort::kFloat},
                                     {kPool},       {ort::kInt32}, {ort::kInt32},
                                     {ort::kInt32}, {ort::kFloat, ort::kOptional}, {ort::kFloat, ort::kOptional}};
  static constexpr Port kOutputs[] = {{ort::kFloat}, {kPool}};

  explicit PagedAttention(const Info& info)
      : shape_{static_cast<size_t>(info.integer("heads")), static_cast<size_t>(info.integer("kv_heads")),
               static_cast<size_t>(info.integer("head_dim")), static_cast<size_t>(info.integer_or("rotary_dim", 0)),
               static_cast<int>(info.integer_or("window", 0)), info.real("scale"), info.real_or("softcap", 0),
               info.integer_or("interleaved", 0) != 0, Type} {
    require(info.integer("page_size") == static_cast<int64_t>(kPageTokens), "found: a page_size other than 16");
    require(shape_.head_dim % 16 == 0 && shape_.head_dim <= 512,
            "found: a head_dim that is not a multiple of 16 up to 512");
    require(shape_.kv_heads > 0 && shape_.heads % shape_.kv_heads == 0, "found: heads not a multiple of kv_heads");
    require(shape_.rotary_dim <= shape_.head_dim && shape_.rotary_dim % 2 == 0, "found: a rotary_dim beyond head_dim");
  }

  void compute(const Context& context) const {
    const Tensor q = context.input(0), pool = context.input(3), table = context.input(4);
    const auto requests = static_cast<size_t>(context.input(6).count());
    float* out = context.output_like<float>(0, q);
    void* pages = context.output_like<char>(1, pool);
    if (pages != pool.data) std::memcpy(pages, pool.data, static_cast<size_t>(pool.count()) * element_bytes());
    if (requests == 0) return;
    static thread_local std::vector<float> rotated;
    if (rotated.size() < static_cast<size_t>(q.count())) rotated.resize(static_cast<size_t>(q.count()));
    const Call call{shape_, q.as<float>(), context.input(1).as<float>(), context.input(2).as<float>(),
                    context.input(7).as<float>(), context.input(8).as<float>(), pages, table.as<int32_t>(),
                    context.input(5).as<int32_t>(), context.input(6).as<int32_t>(), static_cast<size_t>(q.rows()), requests,
                    static_cast<size_t>(table.last()), static_cast<size_t>(pool.dims[1]), rotated.data(), out};
    check_tables(call);
    compute_all(context, call);
  }

 private:
  static constexpr size_t element_bytes() { return Type == PoolType::kFloat ? 4 : 2; }

  Shape shape_;
};

}  // namespace

std::array<const ort::CustomOp*, 2> ops() {
  return {custom_op<PagedAttention<PoolType::kFloat>>(), custom_op<PagedAttention<PoolType::kBfloat16>>()};
}

}  // namespace paceline::attention
