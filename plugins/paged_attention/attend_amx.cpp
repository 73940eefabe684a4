// Attention with AMX tiles: 16 query vectors meet 16 keys, 32 elements of a head at a time.
//
//     queries  [16, head_dim]                            bfloat16, gathered
//     scores   [16, 256] float -> weights [16, 256] bfloat16, by position in the segment
//     keys and values as pairs_amx.h has them: for one tile of query vectors on the way, for more all at once
//
// A row's sums run over keys and elements at fixed places of the sequence; keys that it does not see weigh 0, which adds
// nothing to a sum: who else is in the tile changes none of its bits. Only infinity times 0 is no 0: where a segment has
// values that are no finite numbers, each row gets pairs of its own, with zeros for what it does not see.

#include <algorithm>
#include <cmath>

#include "attention.h"

#if defined(__x86_64__)

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16")

#include "../native/amx_tiles.h"
#include "../native/lanes_avx512.h"
//
#include "../native/lanes_math.h"
//
#include "products_avx512.h"
//
#include "pairs_amx.h"
#include "segment.h"

namespace paceline::attention {
namespace {

constexpr size_t kTileVectors = 16, kRowBytes = 64;

void configure(size_t vectors) {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.rows[tile] = static_cast<uint8_t>(tile < 5 ? vectors : kTilePairs);  // tmm0-3 sums, tmm4 left factor
    config.row_bytes[tile] = kRowBytes;
  }
  TILE_CONFIGURE(&config);
}

// Up to 16 query vectors, and the pages of what they see: whole pairs.
struct VectorTile {
  QueryOf<uint16_t> queries[kTileVectors];
  size_t filled;
  int first_page, last_page;
};

VectorTile tile_of(const Shape& shape, const Work& work, size_t index, size_t filled, size_t segment) {
  const int begin = static_cast<int>(segment * kSegmentTokens), end = begin + static_cast<int>(kSegmentTokens);
  VectorTile tile;
  tile.filled = filled;
  int first = end, last = begin;
  for (size_t q = 0; q < filled; ++q) {
    tile.queries[q] = query_of<uint16_t>(shape, work, index + q, begin, end);
    first = std::min(first, tile.queries[q].first);
    last = std::max(last, tile.queries[q].last);
  }
  constexpr int kPair = kPairPages * kPage;
  tile.first_page = first / kPair * kPairPages;
  tile.last_page = (last + kPair - 1) / kPair * kPairPages;
  return tile;
}

// Query vectors side by side, [16, key_tiles * 32], padded with zeros.
const uint16_t* gathered(const VectorTile& tile, size_t head_dim, size_t padded) {
  static thread_local Kept<uint16_t> kept;
  uint16_t* to = scratch(kept, kTileVectors * padded);
  for (size_t q = 0; q < tile.filled; ++q) {
    std::copy(tile.queries[q].q, tile.queries[q].q + head_dim, to + q * padded);
    std::fill(to + q * padded + head_dim, to + (q + 1) * padded, 0);
  }
  return to;
}

// The macros take literal tile numbers: the instructions encode them. Two or four tiles of sums side by side.
#define ADD_TILE(SUM, RIGHT)          \
  TILE_LOAD(5, RIGHT, kRowBytes);     \
  TILE_BF16(SUM, 4, 5)

// scores[q, 16 page + key] = query . key of four pages, seen or not; `keys` as Pairing has them.
void score_four(const uint16_t* queries, const uint16_t* keys, size_t tiles, float* scores) {
  const size_t page = tiles * kTileNumbers;
  TILE_ZERO(0);
  TILE_ZERO(1);
  TILE_ZERO(2);
  TILE_ZERO(3);
  for (size_t tile = 0; tile < tiles; ++tile, keys += kTileNumbers) {
    TILE_LOAD(4, queries + tile * kTileElements, tiles * kTileElements * 2);
    ADD_TILE(0, keys);
    ADD_TILE(1, keys + page);
    ADD_TILE(2, keys + 2 * page);
    ADD_TILE(3, keys + 3 * page);
  }
  TILE_STORE(0, scores, kSegmentTokens * 4);
  TILE_STORE(1, scores + kPageTokens, kSegmentTokens * 4);
  TILE_STORE(2, scores + 2 * kPageTokens, kSegmentTokens * 4);
  TILE_STORE(3, scores + 3 * kPageTokens, kSegmentTokens * 4);
}

void score_two(const uint16_t* queries, const uint16_t* keys, size_t tiles, float* scores) {
  TILE_ZERO(0);
  TILE_ZERO(1);
  for (size_t tile = 0; tile < tiles; ++tile, keys += kTileNumbers) {
    TILE_LOAD(4, queries + tile * kTileElements, tiles * kTileElements * 2);
    ADD_TILE(0, keys);
    ADD_TILE(1, keys + tiles * kTileNumbers);
  }
  TILE_STORE(0, scores, kSegmentTokens * 4);
  TILE_STORE(1, scores + kPageTokens, kSegmentTokens * 4);
}

// Scores [.., 256] of one vector into weights, as `exponentiate` has them; column 0 is `first_page`.
void weigh(const Shape& shape, const VectorTile& tile, size_t q, float* scores, uint16_t* weights, const Partial& to) {
  Lanes largest = Lanes::set(kMinusInfinity);
  float* at = scores;
  for (int page = tile.first_page; page < tile.last_page; ++page, at += kPage) {
    const Lanes score = finished_score(shape, tile.queries[q], page, Lanes::load(at));
    largest = max(largest, score);
    score.store(at);
  }
  to.shifts[q] = std::ceil(largest.largest());
  to.totals[q] = exponentiate<uint16_t>(to.shifts[q], scores, weights, static_cast<size_t>(at - scores));
}

// sums[q, 16 column + i] = weights[q] . values, for 4 columns of 16, or for 1, from `column` on.
template <typename Source>
void add_four(Source& pairs, const VectorTile& tile, const uint16_t* weights, size_t column, size_t head_dim, float* sums) {
  TILE_ZERO(0);
  TILE_ZERO(1);
  TILE_ZERO(2);
  TILE_ZERO(3);
  for (int page = tile.first_page; page < tile.last_page; page += kPairPages, weights += kTileElements) {
    const uint16_t* values = pairs.values(page, column, 4);
    TILE_LOAD(4, weights, kSegmentTokens * 2);
    ADD_TILE(0, values);
    ADD_TILE(1, values + kTileNumbers);
    ADD_TILE(2, values + 2 * kTileNumbers);
    ADD_TILE(3, values + 3 * kTileNumbers);
  }
  float* to = sums + column * kPageTokens;
  TILE_STORE(0, to, head_dim * 4);
  TILE_STORE(1, to + kPageTokens, head_dim * 4);
  TILE_STORE(2, to + 2 * kPageTokens, head_dim * 4);
  TILE_STORE(3, to + 3 * kPageTokens, head_dim * 4);
}

template <typename Source>
void add_one(Source& pairs, const VectorTile& tile, const uint16_t* weights, size_t column, size_t head_dim, float* sums) {
  TILE_ZERO(0);
  for (int page = tile.first_page; page < tile.last_page; page += kPairPages, weights += kTileElements) {
    TILE_LOAD(4, weights, kSegmentTokens * 2);
    ADD_TILE(0, pairs.values(page, column, 1));
  }
  TILE_STORE(0, sums + column * kPageTokens, head_dim * 4);
}
#undef ADD_TILE

// The partial softmax of a tile's vectors.
template <typename Source>
void attend_tile(const Shape& shape, Source& pairs, const VectorTile& tile, const Partial& to) {
  alignas(64) static thread_local float scores[kTileVectors * kSegmentTokens];
  alignas(64) static thread_local uint16_t weights[kTileVectors * kSegmentTokens];
  const size_t tiles = pairs.key_tiles(), columns = pairs.value_tiles();
  const uint16_t* queries = gathered(tile, shape.head_dim, tiles * kTileElements);
  float* at = scores;
  int page = tile.first_page;
  for (; page + 4 <= tile.last_page; page += 4, at += 4 * kPage) score_four(queries, pairs.keys(page, 4), tiles, at);
  for (; page < tile.last_page; page += 2, at += 2 * kPage) score_two(queries, pairs.keys(page, 2), tiles, at);
  for (size_t q = 0; q < tile.filled; ++q)
    weigh(shape, tile, q, scores + q * kSegmentTokens, weights + q * kSegmentTokens, to);
  size_t column = 0;
  for (; column + 4 <= columns; column += 4) add_four(pairs, tile, weights, column, shape.head_dim, to.sums);
  for (; column < columns; ++column) add_one(pairs, tile, weights, column, shape.head_dim, to.sums);
}

// The query vectors [first, last) of a work and one segment.
struct Part {
  const Shape& shape;
  const Work& work;
  const Cache<uint16_t>& cache;
  size_t segment, first, last;

  size_t rows() const { return (last - first) / shape.group(); }
  Part row(size_t index) const {
    const size_t begin = first + index * shape.group();
    return {shape, work, cache, segment, begin, begin + shape.group()};
  }
  // Of what any of the rows sees.
  Pairing pairing() const {
    const int origin = static_cast<int>(segment * kSegmentTokens), end = origin + static_cast<int>(kSegmentTokens);
    const int position = work.position(work.first_row + first / shape.group());
    const int oldest = shape.window > 0 && position >= shape.window ? position - shape.window + 1 : 0;
    const int newest = work.position(work.first_row + last / shape.group() - 1);
    return {cache, shape.head_dim, std::max(oldest, origin), std::min(newest + 1, end)};
  }
};

template <typename Source>
void attend_part(const Part& part, Source& pairs, const Partial& partial) {
  size_t configured = 0;
  for (size_t index = part.first; index < part.last; index += kTileVectors) {
    const size_t filled = std::min(kTileVectors, part.last - index);
    if (filled != configured) configure(configured = filled);
    const Partial to{partial.sums + index * part.shape.head_dim, partial.shifts + index, partial.totals + index};
    attend_tile(part.shape, pairs, tile_of(part.shape, part.work, index, filled, part.segment), to);
  }
}

// Whether all went well; else there are values that are no numbers, and rows have to be attended to one by one.
bool attend_together(const Part& part, const Partial& partial) {
  if (part.last - part.first <= kTileVectors) {
    StreamedPairs pairs(part.pairing());
    attend_part(part, pairs, partial);
    return pairs.is_finite();
  }
  StoredPairs pairs(part.pairing(), part.segment);
  attend_part(part, pairs, partial);
  return pairs.is_finite();
}

void attend_cache(const Shape& shape, const Work& work, const Cache<uint16_t>& cache, size_t segment,
                  const Partial& partial) {
  const auto [first, last] = seeing(shape, work, segment);
  clear_blind({first, last}, work.vectors(shape), partial);
  if (first >= last) return;
  const Part all{shape, work, cache, segment, first, last};
  if (!attend_together(all, partial))
    for (size_t row = 0; row < all.rows(); ++row) attend_together(all.row(row), partial);
  TILE_RELEASE();
}

void attend_segment(const Shape& shape, const Work& work, size_t segment, const Partial& partial) {
  switch (shape.pool_type) {
    case PoolType::kFloat: return kAvx512Kernels.attend_segment(shape, work, segment, partial);
    case PoolType::kBfloat16: return attend_cache(shape, work, cache_of<uint16_t>(shape, work), segment, partial);
    case PoolType::kFloat8: return attend_cache(shape, work, widened(shape, work, segment), segment, partial);
  }
}

void prepare(const Shape& shape, const Work& work) { kAvx512Kernels.prepare(shape, work); }

void merge(const Shape& shape, const Work& work, const Partial& from, const Partial& into) {
  kAvx512Kernels.merge(shape, work, from, into);
}

void finish(const Shape& shape, const Work& work, const Partial& partial) {
  kAvx512Kernels.finish(shape, work, partial);
}

}  // namespace

const Kernels kAmxKernels{prepare, attend_segment, merge, finish};

}  // namespace paceline::attention

#pragma GCC pop_options
#endif
