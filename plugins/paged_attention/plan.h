// One call of the op: its tensors, and how its work is cut into tasks.
//
// A (request, kv head) owns its part of the pages: nobody else writes it. How the cuts are made changes no bit (tile.h,
// attend.h), so they only have to keep all threads busy:
//
//     few rows                    prepare, attend and finish in one task
//     few rows, many keys         prepare | a task for every kPartSegments segments | merge and finish
//     many rows (prefill)         prepare | attend and finish, kChunkRows rows a task
//
// with all threads done before a bar is crossed.

#pragma once

#include <algorithm>
#include <vector>

#include "attention.h"

namespace paceline::attention {

constexpr size_t kChunkRows = 32;    // more rows than these are cut into chunks
constexpr size_t kPartSegments = 4;  // more segments than these are cut into parts

struct Call {
  const Shape& shape;
  const Kernels& kernels;
  const float *q, *k, *v;
  size_t q_stride, kv_stride;
  const float *cos_sin, *sinks;
  void* pool;
  const int32_t *page_table, *query_start, *context_len;
  size_t rows, requests, max_pages, num_pages;
  float* query;  // [T, heads * head_dim]
  float* out;

  size_t begin(size_t request) const { return static_cast<size_t>(query_start[request]); }
  size_t end(size_t request) const { return static_cast<size_t>(query_start[request + 1]); }
  int position(size_t request, size_t row) const {
    return context_len[request] - static_cast<int>(end(request)) + static_cast<int>(row);
  }
};

// Rows of one request under one kv head, and the segments of keys that they see.
struct Task {
  size_t request, kv_head, first_row, last_row, first_segment, last_segment;

  size_t segments() const { return last_segment - first_segment; }
};

// Segments [first, last) of deep task `task`.
struct Part {
  size_t task, first, last;
};

struct Plan {
  std::vector<Task> shallow, deep, chunks;
  std::vector<Part> parts;
};

inline Task task_of(const Call& call, size_t request, size_t kv_head, size_t first_row, size_t last_row) {
  const int first = call.position(request, first_row), end = call.position(request, last_row);
  const int window = call.shape.window, oldest = window > 0 && first >= window ? first - window + 1 : 0;
  return {request, kv_head, first_row, last_row, static_cast<size_t>(oldest) / kSegmentTokens,
          (static_cast<size_t>(end) + kSegmentTokens - 1) / kSegmentTokens};
}

inline void plan_request(const Call& call, size_t request, size_t kv_head, Plan& plan) {
  const size_t begin = call.begin(request), end = call.end(request);
  if (end - begin > kChunkRows) {
    // The last chunk sees the most keys: it goes first, so that threads finish together.
    for (size_t last = end; last > begin; last -= std::min(kChunkRows, last - begin))
      plan.chunks.push_back(task_of(call, request, kv_head, last - std::min(kChunkRows, last - begin), last));
    return;
  }
  const Task task = task_of(call, request, kv_head, begin, end);
  if (task.segments() <= kPartSegments) return plan.shallow.push_back(task);
  for (size_t first = task.first_segment; first < task.last_segment; first += kPartSegments)
    plan.parts.push_back({plan.deep.size(), first, std::min(first + kPartSegments, task.last_segment)});
  plan.deep.push_back(task);
}

inline Plan make_plan(const Call& call) {
  Plan plan;
  for (size_t request = 0; request < call.requests; ++request)
    for (size_t kv_head = 0; kv_head < call.shape.kv_heads && call.begin(request) < call.end(request); ++kv_head)
      plan_request(call, request, kv_head, plan);
  return plan;
}

}  // namespace paceline::attention
