// Where a kernel's weights come from, tile by tile: 16 words x 16 columns, 1,024 bytes back to back.
//
// `load(panel, word)` of one of P neighbouring panels answers with the tile that begins at `word`; a kernel asks for each
// panel's tiles in order. kRowWords is what a panel row takes in memory, for those that fetch ahead.

#pragma once

#include "decode.h"
#include "kernel.h"

namespace paceline::linear {
namespace {

constexpr size_t kTileWords = 16;

// What is to be fetched while the P panels from `panel` on are used.
template <size_t P, size_t RowWords>
const uint32_t* ahead_of(const Block& b, size_t panel) {
  const auto [next, fetch] = b.ahead;
  if (fetch == Fetch::kAbreast) return next + panel * b.words * RowWords;
  const bool is_last = panel + P >= b.panels && next != nullptr;
  return is_last ? next : b.weights + (panel + P) * b.words * RowWords;
}

// Tiles as they lie in memory.
template <size_t P>
class StoredTiles {
 public:
  static constexpr size_t kRowWords = kWordsPerPanelRow;

  StoredTiles(const Block& b, size_t panel) : weights_(b.weights + panel * b.words * kRowWords), words_(b.words) {}
  const uint32_t* load(size_t panel, size_t word) { return weights_ + (panel * words_ + word) * kRowWords; }

 private:
  const uint32_t* weights_;
  size_t words_;
};

// Tiles that are decoded when they are asked for, into level 1.
template <size_t P, typename Decoder>
class DecodedTiles {
 public:
  static constexpr size_t kRowWords = kCodedWordsPerPanelRow;

  DecodedTiles(const Block& b, size_t panel)
      : decoder_(b.book.exponents), codes_(b.weights + panel * b.words * kRowWords), words_(b.words) {
    for (size_t p = 0; p <= P; ++p) last_[p] = b.book.escapes + b.book.first_escape[panel + p];
    for (size_t p = 0; p < P; ++p) next_[p] = last_[p];
  }

  const uint32_t* load(size_t panel, size_t word) {
    const auto* codes = reinterpret_cast<const uint8_t*>(codes_ + panel * words_ * kRowWords);
    auto* numbers = reinterpret_cast<uint16_t*>(tiles_[panel]);
    decode_words(decoder_, codes, word, kTileWords, next_[panel], last_[panel + 1], numbers);
    return tiles_[panel];
  }

 private:
  Decoder decoder_;
  const uint32_t* codes_;
  size_t words_;
  const Escape *next_[P], *last_[P + 1];
  alignas(64) uint32_t tiles_[P][kTileWords * kWordsPerPanelRow];
};

}  // namespace
}  // namespace paceline::linear
