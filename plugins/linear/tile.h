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

// Into level 2, while this tile is computed: what the thread reads next, as many bytes as it reads now. Hardware
// prefetchers start anew at each panel; this made 8 rows 1.4 (bf16) and 1.6 (int8) times as fast on Zen 4.
inline void fetch_ahead(const uint32_t* weights) { __builtin_prefetch(weights, 0, 2); }

template <typename Dot, size_t R, size_t P>
inline __attribute__((always_inline)) void sum_tile(const Block& b, size_t row, size_t panel,
                                                    const uint32_t* ahead) {
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
    for (size_t p = 0; p < P; ++p) fetch_ahead(ahead + (word * P + p) * kWordsPerPanelRow);
    for (size_t r = 0; r < R; ++r) {
      const auto broadcast = Dot::broadcast(x + r * b.x_stride + word);
      for (size_t c = 0; c < kColumns; ++c) sums[r][c] = Dot::step(sums[r][c], broadcast, w[c]);
    }
  }

  for (size_t r = 0; r < R; ++r)
    for (size_t c = 0; c < kColumns; ++c)
      Dot::store(b.sums + (row + r) * b.sums_stride + panel * kLanes + c * kPartWords, sums[r][c]);
}

// Where to fetch ahead from while the tile that ends before `panel` is computed: the next tile; behind the last one
// whatever the thread will read then.
inline const uint32_t* behind(const Block& b, size_t panel) {
  if (panel < b.panels || b.next == nullptr) return b.weights + panel * b.words * kWordsPerPanelRow;
  return b.next;
}

// Tiles of P panels as long as there are enough, then narrower ones.
template <typename Dot, size_t R, size_t P>
size_t sum_tiles(const Block& b, size_t row, size_t panel) {
  for (; panel + P <= b.panels; panel += P) sum_tile<Dot, R, P>(b, row, panel, behind(b, panel + P));
  return panel;
}

template <typename Dot, size_t R, size_t P>
void sum_panels(const Block& b, size_t row) {
  size_t panel = sum_tiles<Dot, R, P>(b, row, 0);
  if constexpr (P > 4) panel = sum_tiles<Dot, R, 4>(b, row, panel);
  if constexpr (P > 2) panel = sum_tiles<Dot, R, 2>(b, row, panel);
  sum_tiles<Dot, R, 1>(b, row, panel);
}

}  // namespace

}  // namespace paceline::linear
