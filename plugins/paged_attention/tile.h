// Attention of a few query vectors (a tile) to the keys of one segment; compiled once per instruction set.
//
//     query     [heads * head_dim] a row            rotated, float
//     keys      page -> [head_dim, 16]              plane 0 of the pool, for one kv head
//     values    page -> [16, head_dim]              plane 1
//     scores    [tile, 256]                         on the stack
//
// The includer says how much fits its registers: kTileQueries vectors against kTilePages pages of keys, or against
// 16 kTileColumns columns of values. A vector's sums run over its own keys in their order, each lane on its own, lanes
// added last; values that only its neighbours in the tile see are never added, not even times 0 (infinity times 0 is
// no 0). What stands next to a vector in the tile therefore changes none of its bits.

#pragma once

#include <algorithm>
#include <cmath>

#include "attention.h"
#include "products.h"

namespace paceline::attention {
namespace {

constexpr int kPage = static_cast<int>(kPageTokens);
constexpr float kLog2E = 1.44269504f;
constexpr float kMinusInfinity = -__builtin_inff();

// One query vector of a tile, and which keys of the segment it sees: first to last (exclusive), none if not below.
template <typename Kept>
struct Query {
  const Kept* q;
  int first, last;
};

// What a whole tile sees: any of its vectors, and all of them.
struct Range {
  int first, last, common_first, common_last;
};

template <typename Element>
constexpr int kStep = static_cast<int>(Products<Element>::kStep);

template <typename Element>
using QueryOf = Query<typename Products<Element>::Kept>;

template <typename Element>
struct Cache {
  const Element* pool;    // kv_pages
  const int32_t* pages;   // this request's row of the page table
  size_t page_stride;     // elements from page to page
  size_t head_offset;     // of this kv head inside a page
  size_t value_offset;    // of plane 1

  const Element* keys(int page) const { return pool + static_cast<size_t>(pages[page]) * page_stride + head_offset; }
  const Element* values(int page) const { return keys(page) + value_offset; }
};

// Products of Q queries with the keys of P pages, from page `page` on. Fetches what comes next meanwhile, the pages'
// values and the next keys: they lie 2 KB here and 2 KB there (8 rows with 50 to 500 keys on Zen 4: 3.1 -> 2.3 ms).
template <size_t Q, size_t P, typename Element>
inline __attribute__((always_inline)) void multiply_keys(size_t head_dim, const Cache<Element>& cache,
                                                         const QueryOf<Element>* queries, int page, int end,
                                                         Lanes (&sums)[Q][P]) {
  using Product = Products<Element>;
  const Element *keys[P], *values[P], *next_keys[P];
  for (size_t p = 0; p < P; ++p) {
    const int next = page + static_cast<int>(P + p);
    keys[p] = cache.keys(page + static_cast<int>(p));
    values[p] = cache.values(page + static_cast<int>(p));
    next_keys[p] = next < end ? cache.keys(next) : keys[p];
  }
  for (size_t q = 0; q < Q; ++q)
    for (size_t p = 0; p < P; ++p) sums[q][p] = Lanes::set(0.0f);
  for (size_t d = 0; d < head_dim; d += Product::kStep) {
    const size_t offset = d * kPageTokens;
    for (size_t p = 0; p < P; ++p) __builtin_prefetch(values[p] + offset, 0, 2);
    for (size_t p = 0; p < P; ++p) __builtin_prefetch(next_keys[p] + offset, 0, 2);
    typename Product::Operand key[P];
    for (size_t p = 0; p < P; ++p) key[p] = Product::keys(keys[p] + offset);
    for (size_t q = 0; q < Q; ++q) {
      const typename Product::Operand element = Product::repeated(queries[q].q + d);
      for (size_t p = 0; p < P; ++p) sums[q][p] = Product::add(element, key[p], sums[q][p]);
    }
  }
}

// The score's logarithm to base 2; minus infinity where the query does not see the key.
template <typename Kept>
inline Lanes finished_score(const Shape& shape, const Query<Kept>& query, int page, Lanes sum) {
  Lanes score = sum * Lanes::set(shape.softcap > 0 ? shape.scale / shape.softcap : shape.scale * kLog2E);
  if (shape.softcap > 0) score = tanh(score) * Lanes::set(shape.softcap * kLog2E);
  const int first = query.first - page * kPage, last = query.last - page * kPage;
  return first <= 0 && last >= kPage ? score : score.keep(first, last, kMinusInfinity);
}

// Fills scores [Q, 256] for pages [begin, end), column 0 being page `begin`, and the shift of each query: a whole number
// not below its largest score, so that weights relative to other shifts differ by a power of two and round alike.
template <size_t Q, typename Element>
void score_pages(const Shape& shape, const Cache<Element>& cache, const QueryOf<Element>* queries, int begin, int end,
                 float* scores, float* shifts) {
  Lanes running[Q];
  for (size_t q = 0; q < Q; ++q) running[q] = Lanes::set(kMinusInfinity);
  auto take = [&](size_t q, int page, Lanes sum) {
    const Lanes score = finished_score(shape, queries[q], page, sum);
    running[q] = max(running[q], score);
    score.store(scores + q * kSegmentTokens + static_cast<size_t>(page - begin) * kPageTokens);
  };
  int page = begin;
  for (; page + static_cast<int>(kTilePages) <= end; page += static_cast<int>(kTilePages)) {
    Lanes sums[Q][kTilePages];
    multiply_keys<Q, kTilePages>(shape.head_dim, cache, queries, page, end, sums);
    for (size_t q = 0; q < Q; ++q)
      for (size_t p = 0; p < kTilePages; ++p) take(q, page + static_cast<int>(p), sums[q][p]);
  }
  for (; page < end; ++page) {
    Lanes sums[Q][1];
    multiply_keys<Q, 1>(shape.head_dim, cache, queries, page, end, sums);
    for (size_t q = 0; q < Q; ++q) take(q, page, sums[q][0]);
  }
  for (size_t q = 0; q < Q; ++q) shifts[q] = std::ceil(running[q].largest());
}

// weights = 2^(score - shift), rounded as the pool's numbers are; returns their sum. Hidden keys weigh exactly 0.
template <typename Element>
float exponentiate(float shift, const float* scores, typename Products<Element>::Kept* weights, size_t count) {
  Lanes total = Lanes::set(0.0f);
  for (size_t i = 0; i < count; i += kPageTokens)
    total = total + Products<Element>::keep(exp2(Lanes::load(scores + i) - Lanes::set(shift)), weights + i);
  return total.sum();
}

// Calls run(rows of values, their index in `weights`, token) for every kStep tokens of [first, last).
template <typename Element, typename Run>
inline __attribute__((always_inline)) void for_values(size_t head_dim, const Cache<Element>& cache, int first, int last,
                                                      Run run) {
  for (int token = first; token < last;) {
    const int page = token / kPage, end = (page + 1) * kPage < last ? (page + 1) * kPage : last;
    const Element* values = cache.values(page) + static_cast<size_t>(token - page * kPage) * head_dim;
    for (; token < end; token += kStep<Element>, values += kStep<Element> * head_dim) run(values, token);
  }
}

// sums[q][d .. d + 16 C) = sum over the keys that q sees of weight * value. `weights` starts with range.first's page.
template <size_t Q, size_t C, typename Element>
inline __attribute__((always_inline)) void weigh_values(size_t head_dim, const Cache<Element>& cache,
                                                        const QueryOf<Element>* queries, const Range& range,
                                                        const typename Products<Element>::Kept* weights, float* out,
                                                        size_t d) {
  using Product = Products<Element>;
  const int origin = range.first / kPage * kPage;
  Lanes sums[Q][C];
  for (size_t q = 0; q < Q; ++q)
    for (size_t c = 0; c < C; ++c) sums[q][c] = Lanes::set(0.0f);
  auto seen_by_all = [&](const Element* values, int token) {
    typename Product::Operand columns[C];
    Product::values(values + d, head_dim, columns);
    for (size_t q = 0; q < Q; ++q) {
      const auto weight = Product::repeated(weights + q * kSegmentTokens + (token - origin));
      for (size_t c = 0; c < C; ++c) sums[q][c] = Product::add(weight, columns[c], sums[q][c]);
    }
  };
  auto seen_by_some = [&](const Element* values, int token) {
    typename Product::Operand columns[C];
    Product::values(values + d, head_dim, columns);
    for (size_t q = 0; q < Q; ++q) {
      const int first = queries[q].first - token, last = queries[q].last - token;
      if (first >= kStep<Element> || last <= 0) continue;
      const bool sees_all = first <= 0 && last >= kStep<Element>;
      const auto weight = Product::repeated(weights + q * kSegmentTokens + (token - origin));
      for (size_t c = 0; c < C; ++c) {
        const auto column = sees_all ? columns[c] : Product::only(columns[c], first <= 0 ? 0 : 1);
        sums[q][c] = Product::add(weight, column, sums[q][c]);
      }
    }
  };
  for_values(head_dim, cache, range.first, range.common_first, seen_by_some);
  for_values(head_dim, cache, range.common_first, range.common_last, seen_by_all);
  for_values(head_dim, cache, range.common_last, range.last, seen_by_some);
  for (size_t q = 0; q < Q; ++q)
    for (size_t c = 0; c < C; ++c) sums[q][c].store(out + q * head_dim + d + c * kPageTokens);
}

// In whole steps of kStep keys.
template <size_t Q, typename Element>
Range range_of(const QueryOf<Element>* queries) {
  Range range{queries[0].first, queries[0].last, queries[0].first, queries[0].last};
  for (size_t q = 1; q < Q; ++q) {
    range.first = std::min(range.first, queries[q].first);
    range.last = std::max(range.last, queries[q].last);
    range.common_first = std::max(range.common_first, queries[q].first);
    range.common_last = std::min(range.common_last, queries[q].last);
  }
  constexpr int kBelow = kStep<Element> - 1;
  range.first &= ~kBelow;
  range.last = (range.last + kBelow) & ~kBelow;
  range.common_first = (range.common_first + kBelow) & ~kBelow;
  range.common_last &= ~kBelow;
  if (range.common_first >= range.common_last) range.common_first = range.common_last = range.last;
  return range;
}

// The partial softmax of Q vectors, whose keys lie in one segment.
template <size_t Q, typename Element>
void attend_tile(const Shape& shape, const Cache<Element>& cache, const QueryOf<Element>* queries, const Partial& to) {
  const Range range = range_of<Q, Element>(queries);
  const int begin = range.first / kPage, end = (range.last + kPage - 1) / kPage;
  const size_t count = static_cast<size_t>(end - begin) * kPageTokens;
  alignas(64) float scores[Q * kSegmentTokens];
  alignas(64) typename Products<Element>::Kept weights[Q * kSegmentTokens];
  score_pages<Q>(shape, cache, queries, begin, end, scores, to.shifts);
  for (size_t q = 0; q < Q; ++q) {
    const size_t row = q * kSegmentTokens;
    to.totals[q] = exponentiate<Element>(to.shifts[q], scores + row, weights + row, count);
  }
  size_t d = 0;
  for (; d + kTileColumns * kPageTokens <= shape.head_dim; d += kTileColumns * kPageTokens)
    weigh_values<Q, kTileColumns>(shape.head_dim, cache, queries, range, weights, to.sums, d);
  for (; d < shape.head_dim; d += kPageTokens)
    weigh_values<Q, 1>(shape.head_dim, cache, queries, range, weights, to.sums, d);
}

}  // namespace
}  // namespace paceline::attention
