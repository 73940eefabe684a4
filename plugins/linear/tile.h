// The register tile, once for all vector widths.
//
// `Dot` supplies the arithmetic of one format on one instruction set:
//     kParts                 vectors that make one panel row of 64 bytes
//     Sum                    a vector of kLanes / kParts sums: zero(), store(out, sum)
//     Weight, Word           operands as registers hold them: load(weights), broadcast(x)
//     step(sum, word, weight)
// A tile of R rows x P panels keeps R * P * kParts sums in registers, reads each weight row once and uses it R times.

#pragma once

#include "kernel.h"

namespace paceline::linear {

// Compiled into several translation units with different instructions: internal linkage keeps them apart.
namespace {

// Into level 2, while this tile is computed: the next tile's panels, a whole tile ahead. Hardware prefetchers start
// anew at each panel; this made 8 rows 1.4 (bf16) and 1.6 (int8) times as fast on Zen 4. May point behind the weights.
inline void prefetch_next(const uint32_t* weights) { __builtin_prefetch(weights, 0, 2); }

template <typename Dot, size_t R, size_t P>
inline __attribute__((always_inline)) void sum_tile(const Block& b, size_t row, size_t panel) {
  constexpr size_t kColumns = P * Dot::kParts;
  constexpr size_t kPartWords = kWordsPerPanelRow / Dot::kParts;
  typename Dot::Sum sums[R][kColumns];
  for (size_t r = 0; r < R; ++r)
    for (size_t c = 0; c < kColumns; ++c) sums[r][c] = Dot::zero();

  const uint32_t* x = b.x + row * b.x_stride;
  const uint32_t* weights = b.weights + panel * b.words * kWordsPerPanelRow;
  for (size_t word = 0; word < b.words; ++word) {
    typename Dot::Weight w[kColumns];
    for (size_t c = 0; c < kColumns; ++c)
      w[c] = Dot::load(weights + (c / Dot::kParts * b.words + word) * kWordsPerPanelRow + c % Dot::kParts * kPartWords);
    for (size_t p = 0; p < P; ++p) prefetch_next(weights + ((P + p) * b.words + word) * kWordsPerPanelRow);
    for (size_t r = 0; r < R; ++r) {
      const auto broadcast = Dot::broadcast(x + r * b.x_stride + word);
      for (size_t c = 0; c < kColumns; ++c) sums[r][c] = Dot::step(sums[r][c], broadcast, w[c]);
    }
  }

  for (size_t r = 0; r < R; ++r)
    for (size_t c = 0; c < kColumns; ++c)
      Dot::store(b.sums + (row + r) * b.sums_stride + panel * kLanes + c * kPartWords, sums[r][c]);
}

template <typename Dot, size_t R, size_t P>
void sum_panels(const Block& b, size_t row) {
  size_t panel = 0;
  for (; panel + P <= b.panels; panel += P) sum_tile<Dot, R, P>(b, row, panel);
  if constexpr (P > 4)  // what is left over in as few tiles as possible
    for (; panel + 4 <= b.panels; panel += 4) sum_tile<Dot, R, 4>(b, row, panel);
  if constexpr (P > 2)
    for (; panel + 2 <= b.panels; panel += 2) sum_tile<Dot, R, 2>(b, row, panel);
  for (; panel < b.panels; ++panel) sum_tile<Dot, R, 1>(b, row, panel);
}

}  // namespace

}  // namespace paceline::linear
