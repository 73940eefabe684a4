// Attention over pages for a few query vectors at a time; compiled once per instruction set.
//
//     query     [rows, heads * head_dim]            rotated, float
//     keys      page -> [head_dim, 16]              plane 0 of the pool, for one kv head
//     values    page -> [16, head_dim]              plane 1
//     scores    [tile, pages * 16]                  one thread's scratch
//     out       [rows, heads * head_dim]
//
// Batch invariance: a query vector's sums run over its own keys in page order, each lane on its own, lanes added last.
// Keys of other rows' pages that share the tile are masked to exactly 0 and change no bit. Two passes (scores, then
// probabilities times values) instead of an online softmax: no rescaling, so no order of pages to depend on.

#pragma once

#include "attention.h"

namespace paceline::attention {
namespace {

constexpr int kPage = static_cast<int>(kPageTokens);
constexpr float kMinusInfinity = -__builtin_inff();

// One query vector of a tile: which keys it sees, first to last (exclusive), and where it reads and writes.
struct Query {
  const float* q;
  float* out;
  int first, last;
  float sink;
};

template <typename Element>
struct Cache {
  const Element* pool;    // kv_pages
  const int32_t* pages;   // this request's row of the page table
  size_t key_stride;      // elements from page to page
  size_t head_offset;     // of this kv head inside a page
  size_t value_offset;    // of plane 1

  const Element* keys(int page) const { return pool + pages[page] * key_stride + head_offset; }
  const Element* values(int page) const { return keys(page) + value_offset; }
};

// Scores of Q queries against P pages, from page `page` on. Fetches what comes next meanwhile, the pages' values and the
// next keys: they lie 2 KB here and 2 KB there (8 rows with 50 to 500 keys on Zen 4: 3.1 -> 2.3 ms a step).
template <size_t Q, size_t P, typename Element>
inline __attribute__((always_inline)) void score_pages(const Shape& shape, const Cache<Element>& cache,
                                                       const Query* queries, int page, int end, Lanes (&sums)[Q][P]) {
  const Element* keys[P];
  for (size_t p = 0; p < P; ++p) keys[p] = cache.keys(page + static_cast<int>(p));
  for (size_t q = 0; q < Q; ++q)
    for (size_t p = 0; p < P; ++p) sums[q][p] = Lanes::set(0.0f);
  const int next = page + static_cast<int>(P);
  const Element* next_keys = next < end ? cache.keys(next) : keys[0];
  for (size_t d = 0; d < shape.head_dim; ++d) {
    for (size_t p = 0; p < P; ++p) __builtin_prefetch(cache.values(page + static_cast<int>(p)) + d * kPageTokens, 0, 2);
    __builtin_prefetch(next_keys + d * kPageTokens, 0, 2);
    Lanes key[P];
    for (size_t p = 0; p < P; ++p) key[p] = Lanes::load(keys[p] + d * kPageTokens);
    for (size_t q = 0; q < Q; ++q) {
      const Lanes element = Lanes::set(queries[q].q[d]);
      for (size_t p = 0; p < P; ++p) sums[q][p] = fma(element, key[p], sums[q][p]);
    }
  }
}

inline Lanes finished_score(const Shape& shape, const Query& query, int page, Lanes sum) {
  Lanes score = sum * Lanes::set(shape.scale);
  if (shape.softcap > 0) score = tanh(score * Lanes::set(1.0f / shape.softcap)) * Lanes::set(shape.softcap);
  const int first = query.first - page * kPage, last = query.last - page * kPage;
  return first <= 0 && last >= kPage ? score : score.keep(first, last, kMinusInfinity);
}

// Fills scores [Q, stride] for pages [begin, end) and the largest score of each query.
template <size_t Q, typename Element>
void score_all(const Shape& shape, const Cache<Element>& cache, const Query* queries, int begin, int end, float* scores,
               size_t stride, float* largest) {
  Lanes running[Q];
  for (size_t q = 0; q < Q; ++q) running[q] = Lanes::set(kMinusInfinity);
  auto take = [&](size_t q, int page, Lanes sum) {
    const Lanes score = finished_score(shape, queries[q], page, sum);
    running[q] = max(running[q], score);
    score.store(scores + q * stride + static_cast<size_t>(page - begin) * kPageTokens);
  };
  int page = begin;
  for (; page + 2 <= end; page += 2) {
    Lanes sums[Q][2];
    score_pages<Q, 2>(shape, cache, queries, page, end, sums);
    for (size_t q = 0; q < Q; ++q) {
      take(q, page, sums[q][0]);
      take(q, page + 1, sums[q][1]);
    }
  }
  for (; page < end; ++page) {
    Lanes sums[Q][1];
    score_pages<Q, 1>(shape, cache, queries, page, end, sums);
    for (size_t q = 0; q < Q; ++q) take(q, page, sums[q][0]);
  }
  for (size_t q = 0; q < Q; ++q) {
    const float found = running[q].largest();
    largest[q] = found > queries[q].sink ? found : queries[q].sink;
  }
}

// Turns one query's scores into e^(score - largest), in place; returns their sum, the sink included.
inline float exponentiate(const Query& query, float largest, float* scores, size_t count) {
  const Lanes shift = Lanes::set(largest);
  Lanes total = Lanes::set(0.0f);
  for (size_t i = 0; i < count; i += kPageTokens) {
    const Lanes weight = exp(Lanes::load(scores + i) - shift);
    weight.store(scores + i);
    total = total + weight;
  }
  if (query.sink == kMinusInfinity) return total.sum();
  float sink[kPageTokens];
  exp(Lanes::set(query.sink - largest)).store(sink);
  return total.sum() + sink[0];
}

// out[q][d .. d + 16 C) = sum over keys of weight * value, divided by the query's total. Values at `last` and beyond
// are not read: a page may hold another request's leftovers there, and 0 * infinity is no 0.
template <size_t Q, size_t C, typename Element>
inline __attribute__((always_inline)) void weigh_values(const Shape& shape, const Cache<Element>& cache,
                                                        const Query* queries, int begin, int last, const float* weights,
                                                        size_t stride, const float* totals, size_t d) {
  Lanes sums[Q][C];
  for (size_t q = 0; q < Q; ++q)
    for (size_t c = 0; c < C; ++c) sums[q][c] = Lanes::set(0.0f);
  for (int page = begin; page * kPage < last; ++page) {
    const Element* values = cache.values(page) + d;
    const float* weight = weights + static_cast<size_t>(page - begin) * kPageTokens;
    const auto tokens = static_cast<size_t>(last - page * kPage < kPage ? last - page * kPage : kPage);
    for (size_t token = 0; token < tokens; ++token) {
      Lanes value[C];
      for (size_t c = 0; c < C; ++c) value[c] = Lanes::load(values + token * shape.head_dim + c * kPageTokens);
      for (size_t q = 0; q < Q; ++q) {
        const Lanes w = Lanes::set(weight[q * stride + token]);
        for (size_t c = 0; c < C; ++c) sums[q][c] = fma(w, value[c], sums[q][c]);
      }
    }
  }
  for (size_t q = 0; q < Q; ++q)
    for (size_t c = 0; c < C; ++c) (sums[q][c] / Lanes::set(totals[q])).store(queries[q].out + d + c * kPageTokens);
}

template <size_t Q, typename Element>
void attend_tile(const Shape& shape, const Cache<Element>& cache, const Query* queries, float* scratch) {
  int first = queries[0].first, last = queries[0].last;
  for (size_t q = 1; q < Q; ++q) {
    first = queries[q].first < first ? queries[q].first : first;
    last = queries[q].last > last ? queries[q].last : last;
  }
  const int begin = first / kPage, end = (last + kPage - 1) / kPage;
  const size_t stride = static_cast<size_t>(end - begin) * kPageTokens;
  float largest[Q], totals[Q];
  score_all<Q>(shape, cache, queries, begin, end, scratch, stride, largest);
  for (size_t q = 0; q < Q; ++q) totals[q] = exponentiate(queries[q], largest[q], scratch + q * stride, stride);
  size_t d = 0;
  for (; d + 64 <= shape.head_dim; d += 64)
    weigh_values<Q, 4>(shape, cache, queries, begin, last, scratch, stride, totals, d);
  for (; d + 32 <= shape.head_dim; d += 32)
    weigh_values<Q, 2>(shape, cache, queries, begin, last, scratch, stride, totals, d);
  for (; d < shape.head_dim; d += 16)
    weigh_values<Q, 1>(shape, cache, queries, begin, last, scratch, stride, totals, d);
}

// All query heads of one kv head, for rows [work.first_row, work.last_row) of one request.
template <typename Element>
void attend_rows(const Shape& shape, const Work& work, float* scratch) {
  const size_t group = shape.heads / shape.kv_heads, width = shape.heads * shape.head_dim;
  const size_t page_elements = shape.kv_heads * kPageTokens * shape.head_dim;
  const Cache<Element> cache{static_cast<const Element*>(work.pool), work.pages, page_elements,
                             work.kv_head * kPageTokens * shape.head_dim, work.num_pages * page_elements};
  Query tile[kTileQueries];
  size_t filled = 0;
  auto flush = [&] {
    switch (filled) {
      case 1: attend_tile<1>(shape, cache, tile, scratch); break;
      case 2: attend_tile<2>(shape, cache, tile, scratch); break;
      case 3: attend_tile<3>(shape, cache, tile, scratch); break;
      case 4: attend_tile<4>(shape, cache, tile, scratch); break;
    }
    filled = 0;
  };
  for (size_t row = work.first_row; row < work.last_row; ++row) {
    const int position = work.first_position + static_cast<int>(row - work.request_row);
    const int first = shape.window > 0 && position >= shape.window ? position - shape.window + 1 : 0;
    for (size_t g = 0; g < group; ++g) {
      const size_t head = work.kv_head * group + g, offset = row * width + head * shape.head_dim;
      const float sink = work.sinks == nullptr ? kMinusInfinity : work.sinks[head];
      tile[filled++] = {work.query + offset, work.out + offset, first, position + 1, sink};
      if (filled == kTileQueries) flush();
    }
  }
  flush();
}

void attend(const Shape& shape, const Work& work, float* scratch) {
  if (shape.pool_type == PoolType::kFloat)
    attend_rows<float>(shape, work, scratch);
  else
    attend_rows<uint16_t>(shape, work, scratch);
}

}  // namespace
}  // namespace paceline::attention
