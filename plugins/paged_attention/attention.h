// What the parts of the attention kernel share: the shape of a layer, one piece of work, and who computes it.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "../native/ort_abi.h"

namespace paceline::attention {

constexpr size_t kPageTokens = 16;   // one vector of scores a page; contract.PAGE_SIZE
constexpr size_t kTileQueries = 4;   // query vectors that share one pass over keys and values

enum class PoolType { kFloat, kBfloat16 };

struct Shape {
  size_t heads, kv_heads, head_dim, rotary_dim;
  int window;      // 0: all keys; else a query at p sees p - window + 1 .. p
  float scale;
  float softcap;   // 0: none
  bool interleaved;
  PoolType pool_type;
};

// Rows of one request under one kv head. Row `request_row` stands at `first_position`.
struct Work {
  const float* query;      // [T, heads * head_dim], rotated
  float* out;              // the same shape
  const void* pool;        // [2, num_pages, kv_heads, 16 * head_dim]
  const int32_t* pages;    // this request's row of the page table
  const float* sinks;      // [heads] or null
  size_t num_pages;        // in the pool
  size_t kv_head;
  size_t request_row, first_row, last_row;
  int first_position;
};

// `scratch` holds kTileQueries * (context rounded up to whole pages) floats.
using Attend = void (*)(const Shape& shape, const Work& work, float* scratch);

extern const Attend kPortableAttend;
#if defined(__x86_64__)
extern const Attend kAvx2Attend, kAvx512Attend;
#endif

std::array<const ort::CustomOp*, 2> ops();

}  // namespace paceline::attention
