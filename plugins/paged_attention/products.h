// How queries are multiplied with keys, and weights with values: one element at a time, in float.
//
// With a bfloat16 pool queries and weights are rounded to bfloat16 as keys and values are, so that an instruction set
// with dot products of bfloat16 pairs may use them (products_avx512.h). Include after one of the lanes_*.h files.

#pragma once

#include <cstddef>
#include <cstdint>

namespace paceline::attention {
namespace {

// 16 floats as a pool of Element would hold them.
template <typename Element>
Lanes rounded_to(Lanes values) {
  Element kept[16];
  values.store(kept);
  return Lanes::load(kept);
}

template <typename Element>
struct Products {
  using Kept = float;     // a query's element or a weight, rounded
  using Operand = Lanes;
  static constexpr size_t kStep = 1;  // elements of a head, or keys, that one `add` takes

  // Stores 16 query elements or weights; returns what they are now.
  static Lanes keep(Lanes values, Kept* to) {
    const Lanes kept = rounded_to<Element>(values);
    kept.store(to);
    return kept;
  }
  // kStep elements of a query or weights, 16 times.
  static Operand repeated(const Kept* at) { return Lanes::set(*at); }
  // Elements d to d + kStep of 16 keys: `at` is row d of [head_dim, 16].
  static Operand keys(const Element* at) { return Lanes::load(at); }
  // kStep values of 16 C columns; `at` is a row of [16, head_dim].
  template <size_t C>
  static void values(const Element* at, size_t, Operand (&columns)[C]) {
    for (size_t c = 0; c < C; ++c) columns[c] = Lanes::load(at + c * 16);
  }
  // Without all values but number `index` of kStep.
  static Operand only(Operand column, int) { return column; }
  static Lanes add(Operand left, Operand right, Lanes sum) { return fma(left, right, sum); }
};

}  // namespace
}  // namespace paceline::attention
