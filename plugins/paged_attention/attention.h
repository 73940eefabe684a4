// What the parts of the attention kernel share: the shape of a layer, one piece of work, and who computes it.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "../native/ort_abi.h"

namespace paceline::attention {

constexpr size_t kPageTokens = 16;      // one vector of scores a page; contract.PAGE_SIZE
constexpr size_t kSegmentPages = 16;    // pages that share one softmax shift; see attend.h
constexpr size_t kSegmentTokens = kSegmentPages * kPageTokens;
constexpr size_t kMostHeadDim = 512;

enum class PoolType { kFloat, kBfloat16, kFloat8 };

struct Shape {
  size_t heads, kv_heads, head_dim, rotary_dim;
  int window;      // 0: all keys; else a query at p sees p - window + 1 .. p
  float scale;
  float softcap;   // 0: none
  bool interleaved;
  PoolType pool_type;
  float key_scale = 1, value_scale = 1;  // kFloat8: what a number in the pool is to be multiplied with

  size_t group() const { return heads / kv_heads; }
};

// Rows [first_row, last_row) of one request under one kv head: (last_row - first_row) * group query vectors, row after
// row, and within a row head after head.
struct Work {
  const float *q, *k, *v;  // [T, heads or kv_heads * head_dim]
  size_t q_stride, kv_stride;  // floats from row to row: more than a row where the three lie in one tensor
  const float* cos_sin;    // [T, rotary_dim] or null
  void* query;             // [T, heads * head_dim], up to 4 bytes each: what `prepare` makes of q
  float* out;              // [T, heads * head_dim]
  void* pool;              // [2, num_pages, kv_heads, 16 * head_dim]
  const int32_t* pages;    // this request's row of the page table
  const float* sinks;      // [heads] or null
  size_t num_pages;        // in the pool
  size_t kv_head;
  size_t first_row, last_row;
  int first_position;      // of first_row

  int position(size_t row) const { return first_position + static_cast<int>(row - first_row); }
  size_t vectors(const Shape& shape) const { return (last_row - first_row) * shape.group(); }
};

// A softmax in the making, per query vector: sums of 2^(score - shift) * value, [vectors, head_dim], and of these
// weights alone. A total of 0 says that the vector has seen no key yet; its sums are then not written.
struct Partial {
  float* sums;
  float* shifts;
  float* totals;

  static size_t floats(size_t vectors, size_t head_dim) { return vectors * (head_dim + 2); }
  static Partial in(float* memory, size_t vectors, size_t head_dim) {
    return {memory, memory + vectors * head_dim, memory + vectors * (head_dim + 1)};
  }
};

// The same functions for every instruction set: rows are prepared (prepare.h), attended to segment by segment, the
// segments merged, and the result divided (attend.h).
struct Kernels {
  void (*prepare)(const Shape& shape, const Work& work);
  void (*attend_segment)(const Shape& shape, const Work& work, size_t segment, const Partial& partial);
  void (*merge)(const Shape& shape, const Work& work, const Partial& from, const Partial& into);
  void (*finish)(const Shape& shape, const Work& work, const Partial& partial);
};

extern const Kernels kPortableKernels;
#if defined(__x86_64__)
extern const Kernels kAvx2Kernels, kAvx512Kernels;
#endif

std::array<const ort::CustomOp*, 3> ops();

}  // namespace paceline::attention
