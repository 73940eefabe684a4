// The three kernels of attention.h, made of tiles; compiled once per instruction set.
//
// Keys are taken in segments of 256, at fixed positions of the sequence. A segment's softmax is complete in itself
// (scores, then weights, then weights times values); segments are merged in their order. Who computes a segment, and
// together with which other rows, therefore changes no bit: batch invariance, with long contexts split over threads.
// An online softmax page by page lost (it rescales 16 times as often), and so did one over the whole context (its
// scores leave the cache, and one thread has to do it all).

#pragma once

#include <algorithm>
#include <vector>

#include "prepare.h"
#include "tile.h"

namespace paceline::attention {
namespace {

inline float exp2_of(float x) {
  float lane[kPageTokens];
  exp2(Lanes::set(x)).store(lane);
  return lane[0];
}

template <typename Element>
Cache<Element> cache_of(const Shape& shape, const Work& work) {
  const size_t head_elements = kPageTokens * shape.head_dim, page_elements = shape.kv_heads * head_elements;
  return {static_cast<const Element*>(work.pool), work.pages, page_elements, work.kv_head * head_elements,
          work.num_pages * page_elements};
}

// Query vector `index` of the work, and what it sees of the keys [begin, end).
template <typename Element>
QueryOf<Element> query_of(const Shape& shape, const Work& work, size_t index, int begin, int end) {
  const size_t row = index / shape.group(), head = work.kv_head * shape.group() + index % shape.group();
  const int position = work.position(work.first_row + row);
  const int oldest = shape.window > 0 && position >= shape.window ? position - shape.window + 1 : 0;
  const auto* q = static_cast<const typename Products<Element>::Kept*>(work.query) +
                  ((work.first_row + row) * shape.heads + head) * shape.head_dim;
  return {q, oldest > begin ? oldest : begin, position + 1 < end ? position + 1 : end};
}

template <size_t Q, typename Element>
void attend_filled(const Shape& shape, const Cache<Element>& cache, const QueryOf<Element>* tile, size_t filled,
                   const Partial& to) {
  if (filled == Q) return attend_tile<Q>(shape, cache, tile, to);
  if constexpr (Q > 1) attend_filled<Q - 1>(shape, cache, tile, filled, to);
}

inline size_t clamped(int row, size_t rows) { return row < 0 ? 0 : std::min(static_cast<size_t>(row), rows); }

// Only rows see keys of [begin, end) that are not older than `begin` and, with a window, not too far behind `end`.
template <typename Element>
void attend_vectors(const Shape& shape, const Work& work, const Cache<Element>& cache, size_t segment,
                    const Partial& partial) {
  const int begin = static_cast<int>(segment * kSegmentTokens), end = begin + static_cast<int>(kSegmentTokens);
  const size_t rows = work.last_row - work.first_row, vectors = work.vectors(shape);
  const size_t first = clamped(begin - work.first_position, rows) * shape.group();
  const int beyond = shape.window == 0 ? static_cast<int>(rows) : end + shape.window - 1 - work.first_position;
  const size_t last = clamped(beyond, rows) * shape.group();
  std::fill(partial.totals, partial.totals + first, 0.0f);
  std::fill(partial.totals + last, partial.totals + vectors, 0.0f);
  QueryOf<Element> tile[kTileQueries];
  for (size_t index = first; index < last; index += kTileQueries) {
    const size_t filled = std::min(kTileQueries, last - index);
    for (size_t q = 0; q < filled; ++q) tile[q] = query_of<Element>(shape, work, index + q, begin, end);
    const Partial to{partial.sums + index * shape.head_dim, partial.shifts + index, partial.totals + index};
    attend_filled<kTileQueries>(shape, cache, tile, filled, to);
  }
}

// A segment's pages of one kv head, widened to bfloat16 into memory of this thread: keys of all pages, then values.
inline Cache<uint16_t> widened(const Shape& shape, const Work& work, size_t segment) {
  static thread_local std::vector<uint16_t> memory;
  static thread_local std::vector<int32_t> pages;
  const Cache<uint8_t> narrow = cache_of<uint8_t>(shape, work);
  const size_t elements = kPageTokens * shape.head_dim, values = kSegmentPages * elements;
  const size_t first = segment * kSegmentPages;
  const int last_key = work.position(work.last_row - 1);
  const size_t count = std::min(kSegmentPages, static_cast<size_t>(last_key) / kPageTokens + 1 - first);
  if (memory.size() < 2 * values) memory.resize(2 * values);
  if (pages.size() < first + kSegmentPages) pages.resize(first + kSegmentPages);
  for (size_t i = 0; i < count; ++i) {
    const int page = static_cast<int>(first + i);
    pages[first + i] = static_cast<int32_t>(i);
    bfloat16_from_float8(narrow.keys(page), memory.data() + i * elements, elements);
    bfloat16_from_float8(narrow.values(page), memory.data() + values + i * elements, elements);
  }
  return {memory.data(), pages.data(), elements, 0, values};
}

void attend_segment(const Shape& shape, const Work& work, size_t segment, const Partial& partial) {
  switch (shape.pool_type) {
    case PoolType::kFloat: return attend_vectors(shape, work, cache_of<float>(shape, work), segment, partial);
    case PoolType::kBfloat16: return attend_vectors(shape, work, cache_of<uint16_t>(shape, work), segment, partial);
    case PoolType::kFloat8: return attend_vectors(shape, work, widened(shape, work, segment), segment, partial);
  }
}

// Adds a later segment's partial softmax to that of the segments before it.
void merge(const Shape& shape, const Work& work, const Partial& from, const Partial& into) {
  for (size_t i = 0; i < work.vectors(shape); ++i) {
    if (from.totals[i] == 0) continue;
    float* sums = into.sums + i * shape.head_dim;
    const float* more = from.sums + i * shape.head_dim;
    if (into.totals[i] == 0) {
      std::copy(more, more + shape.head_dim, sums);
      into.shifts[i] = from.shifts[i];
      into.totals[i] = from.totals[i];
      continue;
    }
    const float shift = std::max(into.shifts[i], from.shifts[i]);
    const float keep = exp2_of(into.shifts[i] - shift), add = exp2_of(from.shifts[i] - shift);
    for (size_t d = 0; d < shape.head_dim; d += kPageTokens)
      fma(Lanes::load(sums + d), Lanes::set(keep), Lanes::load(more + d) * Lanes::set(add)).store(sums + d);
    into.totals[i] = into.totals[i] * keep + from.totals[i] * add;
    into.shifts[i] = shift;
  }
}

// Divides the sums by the totals into `work.out`; a sink is one more score, without a value.
void finish(const Shape& shape, const Work& work, const Partial& partial) {
  const size_t group = shape.group();
  for (size_t i = 0; i < work.vectors(shape); ++i) {
    const size_t head = work.kv_head * group + i % group;
    float* out = work.out + ((work.first_row + i / group) * shape.heads + head) * shape.head_dim;
    float keep = 1.0f, total = partial.totals[i];
    if (work.sinks != nullptr) {
      const float sink = work.sinks[head] * kLog2E, shift = std::max(partial.shifts[i], std::ceil(sink));
      keep = exp2_of(partial.shifts[i] - shift);
      total = total * keep + exp2_of(sink - shift);
    }
    const float* sums = partial.sums + i * shape.head_dim;
    for (size_t d = 0; d < shape.head_dim; d += kPageTokens)
      (Lanes::load(sums + d) * Lanes::set(keep) / Lanes::set(total) * Lanes::set(shape.value_scale)).store(out + d);
  }
}

}  // namespace
}  // namespace paceline::attention
