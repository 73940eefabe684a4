// What every kernel asks of one segment of keys: where its pages are, who sees them, and narrow ones widened.

#pragma once

#include <algorithm>
#include <vector>

#include "float8.h"
#include "query.h"

namespace paceline::attention {
namespace {

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

inline size_t clamped(int row, size_t rows) { return row < 0 ? 0 : std::min(static_cast<size_t>(row), rows); }

// Query vectors of the work that see keys of the segment, [first, last): those that are not older than its begin and, with
// a window, not too far behind its end.
struct Seeing {
  size_t first, last;
};

inline Seeing seeing(const Shape& shape, const Work& work, size_t segment) {
  const int begin = static_cast<int>(segment * kSegmentTokens), end = begin + static_cast<int>(kSegmentTokens);
  const size_t rows = work.last_row - work.first_row;
  const int beyond = shape.window == 0 ? static_cast<int>(rows) : end + shape.window - 1 - work.first_position;
  return {clamped(begin - work.first_position, rows) * shape.group(), clamped(beyond, rows) * shape.group()};
}

// Totals of 0 for all others: they have seen no key.
inline void clear_blind(const Seeing& seeing, size_t vectors, const Partial& partial) {
  std::fill(partial.totals, partial.totals + seeing.first, 0.0f);
  std::fill(partial.totals + seeing.last, partial.totals + vectors, 0.0f);
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

}  // namespace
}  // namespace paceline::attention
