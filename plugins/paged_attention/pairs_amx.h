// Keys and values of one segment as AMX tiles want them: the two factors of a product in one word.
//
//     keys     page     -> [head_dim / 32][16 pairs of d][16 keys]          the pool's [head_dim, 16], rows paired
//     values   2 pages  -> [head_dim / 16][16 pairs of tokens][16 columns]  the pool's [16, head_dim], rows paired
//
// Zeros stand for positions that are not to be seen, for pages that are not there, and behind head_dim. Include after
// products_avx512.h.

#pragma once

#include <algorithm>

#include "../native/scratch.h"
#include "query.h"

namespace paceline::attention {
namespace {

using Product = Products<uint16_t>;
using Pairs = Product::Operand;  // 16 words

constexpr size_t kTilePairs = 16, kTileElements = 2 * kTilePairs;
constexpr size_t kTileNumbers = kTilePairs * kPageTokens * 2;  // bfloat16 of a tile: 1,024 bytes
constexpr int kPairPages = 2;                                  // of a tile of values

// Of two neighbouring tokens those that are seen, as a mask of words.
inline Pairs mask_of(bool sees_first, bool sees_second) {
  return _mm512_set1_epi32((sees_first ? 0xffff : 0) | (sees_second ? -0x10000 : 0));
}

// Pairs of the positions [begin, end), page by page.
class Pairing {
 public:
  Pairing(const Cache<uint16_t>& cache, size_t head_dim, int begin, int end)
      : cache_(cache), head_dim_(head_dim), begin_(begin), end_(end) {}

  size_t key_tiles() const { return (head_dim_ + kTileElements - 1) / kTileElements; }
  size_t value_tiles() const { return head_dim_ / kPageTokens; }
  int first_page() const { return begin_ / kPage; }
  int last_page() const { return (end_ + kPage - 1) / kPage; }

  // Whether all values that were paired so far are numbers but infinity.
  bool is_finite() const { return _mm512_cmpge_epu16_mask(largest_, _mm512_set1_epi16(0x7f80)) == 0; }

  // One page's keys: key_tiles() tiles.
  void pair_keys(int page, uint16_t* to) const {
    uint16_t* const end = to + key_tiles() * kTileNumbers;
    if (is_there(page)) {
      const uint16_t *from = cache_.keys(page), *next = cache_.keys(behind(page));
      for (size_t d = 0; d < head_dim_; d += 2, to += 2 * kPageTokens) {
        __builtin_prefetch(next + d * kPageTokens);
        _mm512_store_si512(to, Product::keys(from + d * kPageTokens));
      }
    }
    std::fill(to, end, 0);
  }

  // Two pages' values, columns [16 tile, 16 (tile + tiles)): as many tiles.
  void pair_values(int page, size_t tile, size_t tiles, uint16_t* to) {
    for (int i = 0; i < kPairPages; ++i)
      pair_half(page + i, tile, tiles, to + static_cast<size_t>(i) * kTileNumbers / kPairPages);
  }

 private:
  static constexpr int kAhead = 2;  // pages that are fetched before they are paired: 2 KB here, 2 KB there

  bool is_there(int page) const { return page >= first_page() && page < last_page(); }
  int behind(int page) const { return std::min(page + kAhead, last_page() - 1); }
  bool sees(int token) const { return token >= begin_ && token < end_; }

  void pair_half(int page, size_t tile, size_t tiles, uint16_t* to) {
    if (!is_there(page)) {
      for (size_t i = 0; i < tiles; ++i) std::fill_n(to + i * kTileNumbers, kTileNumbers / kPairPages, 0);
      return;
    }
    const uint16_t *from = cache_.values(page) + tile * kPageTokens, *next = cache_.values(behind(page)) + tile * kPageTokens;
    for (int token = page * kPage; token < (page + 1) * kPage; token += 2) {
      const Pairs seen = mask_of(sees(token), sees(token + 1));
      size_t i = 0;
      for (; i + 2 <= tiles; i += 2) pair_columns<2>(from + i * kPageTokens, next + i * kPageTokens, seen, to + i * kTileNumbers);
      if (i < tiles) pair_columns<1>(from + i * kPageTokens, next + i * kPageTokens, seen, to + i * kTileNumbers);
      from += 2 * head_dim_;
      next += 2 * head_dim_;
      to += 2 * kPageTokens;
    }
  }

  template <size_t C>
  void pair_columns(const uint16_t* from, const uint16_t* next, Pairs seen, uint16_t* to) {
    Pairs pairs[C];
    __builtin_prefetch(next);
    __builtin_prefetch(next + head_dim_);
    Product::values(from, head_dim_, pairs);
    for (size_t c = 0; c < C; ++c) {
      const Pairs kept = _mm512_and_si512(pairs[c], seen);
      largest_ = _mm512_max_epu16(largest_, _mm512_and_si512(kept, _mm512_set1_epi16(0x7fff)));
      _mm512_store_si512(to + c * kTileNumbers, kept);
    }
  }

  Cache<uint16_t> cache_;
  size_t head_dim_;
  int begin_, end_;
  Pairs largest_ = _mm512_setzero_si512();  // magnitude of values, as whole numbers
};

// All pairs of a segment at once, for many query vectors.
class StoredPairs {
 public:
  StoredPairs(Pairing pairing, size_t segment) : origin_(static_cast<int>(segment * kSegmentPages)) {
    static thread_local Kept<uint16_t> kept_keys, kept_values;
    key_tiles_ = pairing.key_tiles();
    value_tiles_ = pairing.value_tiles();
    keys_ = scratch(kept_keys, kSegmentPages * key_tiles_ * kTileNumbers);
    values_ = scratch(kept_values, kSegmentPages / kPairPages * value_tiles_ * kTileNumbers);
    for (int page = pairing.first_page() & ~1; page < pairing.last_page(); page += kPairPages) {
      for (int i = 0; i < kPairPages; ++i) pairing.pair_keys(page + i, keys_at(page + i));
      pairing.pair_values(page, 0, value_tiles_, values_at(page));
    }
    is_finite_ = pairing.is_finite();
  }

  bool is_finite() const { return is_finite_; }
  size_t key_tiles() const { return key_tiles_; }
  size_t value_tiles() const { return value_tiles_; }
  const uint16_t* keys(int page, int) { return keys_at(page); }
  const uint16_t* values(int page, size_t tile, size_t) { return values_at(page) + tile * kTileNumbers; }

 private:
  uint16_t* keys_at(int page) const { return keys_ + static_cast<size_t>(page - origin_) * key_tiles_ * kTileNumbers; }
  uint16_t* values_at(int page) const {
    return values_ + static_cast<size_t>((page - origin_) / kPairPages) * value_tiles_ * kTileNumbers;
  }

  int origin_;
  size_t key_tiles_, value_tiles_;
  uint16_t *keys_, *values_;
  bool is_finite_;
};

// The same pairs made when they are asked for, in memory that stays in level 1: for the query vectors of one tile.
class StreamedPairs {
 public:
  static constexpr int kMostPages = 4;
  static constexpr size_t kMostValueTiles = 4;

  explicit StreamedPairs(const Pairing& pairing) : pairing_(pairing) {
    static thread_local Kept<uint16_t> kept;
    memory_ = scratch(kept, std::max(kMostPages * pairing.key_tiles(), kMostValueTiles) * kTileNumbers);
  }

  bool is_finite() const { return pairing_.is_finite(); }
  size_t key_tiles() const { return pairing_.key_tiles(); }
  size_t value_tiles() const { return pairing_.value_tiles(); }
  const uint16_t* keys(int page, int pages) {
    for (int i = 0; i < pages; ++i)
      pairing_.pair_keys(page + i, memory_ + static_cast<size_t>(i) * key_tiles() * kTileNumbers);
    return memory_;
  }
  const uint16_t* values(int page, size_t tile, size_t tiles) {
    pairing_.pair_values(page, tile, tiles, memory_);
    return memory_;
  }

 private:
  Pairing pairing_;
  uint16_t* memory_;
};

}  // namespace
}  // namespace paceline::attention
