// Before attention: new keys and values go into their pages, queries into the form that the kernels multiply.
//
//     q, k, v -> rotate q and k -> round to the pool's type -> page [head_dim, 16] of keys, [16, head_dim] of values
//
// Compiled once per instruction set, with the same bits from each: every product and sum rounds on its own.

#pragma once

#include <algorithm>

#include "attention.h"
#include "float8.h"
#include "products.h"

namespace paceline::attention {
namespace {

// Elements [first, first + 16) of the two halves of a vector, turned against each other.
inline void rotate_lanes(const float* a, const float* b, const float* cosine, const float* sine, float* to_a,
                         float* to_b) {
  const Lanes x = Lanes::load(a), y = Lanes::load(b), c = Lanes::load(cosine), s = Lanes::load(sine);
  (x * c - y * s).store(to_a);
  (y * c + x * s).store(to_b);
}

// One head's vector; the first rotary_dim elements turn, the rest are copied. cos_sin is one row: cosines, then sines.
inline void rotate(const Shape& shape, const float* from, const float* cos_sin, float* to) {
  const size_t turning = cos_sin == nullptr ? 0 : shape.rotary_dim, half = turning / 2;
  const float *cosine = cos_sin, *sine = cos_sin + half;
  size_t i = 0;
  if (!shape.interleaved)
    for (; i + kPageTokens <= half; i += kPageTokens)
      rotate_lanes(from + i, from + half + i, cosine + i, sine + i, to + i, to + half + i);
  const size_t step = shape.interleaved ? 2 : 1, other = shape.interleaved ? 1 : half;
  for (; i < half; ++i) {
    const float a = from[i * step], b = from[i * step + other];
    to[i * step] = a * cosine[i] - b * sine[i];
    to[i * step + other] = b * cosine[i] + a * sine[i];
  }
  std::copy(from + turning, from + shape.head_dim, to + turning);
}

// 16 numbers in the form that a pool of Element has them.
template <typename Element>
void store_in_pool(const float* from, float, Element* to) {
  Lanes::load(from).store(to);
}
inline void store_in_pool(const float* from, float scale, uint8_t* to) {
  for (size_t i = 0; i < kPageTokens; ++i) to[i] = float8_from_float(from[i] / scale);
}

template <typename Element>
void write_key_and_value(const Shape& shape, const Work& work, const float* key, const float* value, int position) {
  const size_t page = static_cast<size_t>(work.pages[static_cast<size_t>(position) / kPageTokens]);
  const size_t slot = static_cast<size_t>(position) % kPageTokens, head_elements = kPageTokens * shape.head_dim;
  Element* keys = static_cast<Element*>(work.pool) + (page * shape.kv_heads + work.kv_head) * head_elements;
  Element* values = keys + work.num_pages * shape.kv_heads * head_elements + slot * shape.head_dim;
  for (size_t d = 0; d < shape.head_dim; d += kPageTokens) {
    Element column[kPageTokens];
    store_in_pool(key + d, shape.key_scale, column);
    for (size_t i = 0; i < kPageTokens; ++i) keys[(d + i) * kPageTokens + slot] = column[i];
    store_in_pool(value + d, shape.value_scale, values + d);
  }
}

// `Element` is the pool's, `Operand` what queries meet: bfloat16 where the pool is E4M3.
template <typename Element, typename Operand>
void prepare_rows(const Shape& shape, const Work& work) {
  auto* queries = static_cast<typename Products<Operand>::Kept*>(work.query);
  float turned[kMostHeadDim];
  for (size_t row = work.first_row; row < work.last_row; ++row) {
    const float* cos_sin = work.cos_sin == nullptr ? nullptr : work.cos_sin + row * shape.rotary_dim;
    const size_t kv_offset = row * work.kv_stride + work.kv_head * shape.head_dim;
    rotate(shape, work.k + kv_offset, cos_sin, turned);
    write_key_and_value<Element>(shape, work, turned, work.v + kv_offset, work.position(row));
    for (size_t g = 0; g < shape.group(); ++g) {
      const size_t head = work.kv_head * shape.group() + g, offset = (row * shape.heads + head) * shape.head_dim;
      rotate(shape, work.q + row * work.q_stride + head * shape.head_dim, cos_sin, turned);
      for (size_t d = 0; d < shape.head_dim; d += kPageTokens)
        Products<Operand>::keep(Lanes::load(turned + d), queries + offset + d);
    }
  }
}

void prepare(const Shape& shape, const Work& work) {
  switch (shape.pool_type) {
    case PoolType::kFloat: return prepare_rows<float, float>(shape, work);
    case PoolType::kBfloat16: return prepare_rows<uint16_t, uint16_t>(shape, work);
    case PoolType::kFloat8: return prepare_rows<uint8_t, uint16_t>(shape, work);
  }
}

}  // namespace
}  // namespace paceline::attention
