// One query vector and the keys that it sees: scores out of products, weights out of scores; the same for all kernels.

#pragma once

#include "attention.h"
#include "products.h"

namespace paceline::attention {
namespace {

constexpr int kPage = static_cast<int>(kPageTokens);
constexpr float kLog2E = 1.44269504f;
constexpr float kMinusInfinity = -__builtin_inff();

// One query vector, and which keys of the segment it sees: first to last (exclusive), none if not below.
template <typename Kept>
struct Query {
  const Kept* q;
  int first, last;
};

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

// The score's logarithm to base 2; minus infinity where the query does not see the key.
template <typename Kept>
inline Lanes finished_score(const Shape& shape, const Query<Kept>& query, int page, Lanes sum) {
  Lanes score = sum * Lanes::set(shape.softcap > 0 ? shape.scale / shape.softcap : shape.scale * kLog2E);
  if (shape.softcap > 0) score = tanh(score) * Lanes::set(shape.softcap * kLog2E);
  const int first = query.first - page * kPage, last = query.last - page * kPage;
  return first <= 0 && last >= kPage ? score : score.keep(first, last, kMinusInfinity);
}

// weights = 2^(score - shift), rounded as the pool's numbers are; returns their sum. Hidden keys weigh exactly 0.
template <typename Element>
float exponentiate(float shift, const float* scores, typename Products<Element>::Kept* weights, size_t count) {
  Lanes total = Lanes::set(0.0f);
  for (size_t i = 0; i < count; i += kPageTokens)
    total = total + Products<Element>::keep(exp2(Lanes::load(scores + i) - Lanes::set(shift)), weights + i);
  return total.sum();
}

}  // namespace
}  // namespace paceline::attention
