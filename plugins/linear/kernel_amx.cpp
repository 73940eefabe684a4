// AMX: a tile of x (16 rows x 16 words) meets a tile of weights (16 words x 16 columns, 1,024 bytes in a row of a panel).
//
//     tmm0-3   sums     one row tile x four panels, or two row tiles x two panels
//     tmm4-5   x        up to 16 rows each
//     tmm6-7   weights
// The words of K are taken in the same order in both shapes, so a row's bits do not depend on which one it met. float32
// has no tile instruction and takes the AVX-512 path.

#include <algorithm>

#include "kernel.h"

#if defined(__x86_64__)

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,amx-tile,amx-bf16,amx-int8")

#include "../native/amx_tiles.h"
//
#if defined(PACELINE_EMULATE_TILES)
#include "decode.h"
#else
#include "decode_avx512.h"
#endif
//
#include "weight_tiles.h"

namespace paceline::linear {
namespace {

constexpr size_t kTileRows = 16;
constexpr size_t kRowBytes = 64;
constexpr size_t kMostDecodings = 3;  // of the same weights, before it is better to do it once into level 2

TileConfig config_for(size_t first_rows, size_t second_rows) {
  TileConfig config;
  const size_t rows[8] = {first_rows, first_rows, second_rows, second_rows, first_rows, second_rows, kTileWords, kTileWords};
  for (int tile = 0; tile < 8; ++tile) {
    config.rows[tile] = static_cast<uint8_t>(rows[tile]);
    config.row_bytes[tile] = kRowBytes;
  }
  return config;
}

const uint32_t* x_at(const Block& b, size_t row, size_t word) { return b.x + row * b.x_stride + word; }

const uint32_t* weights_at(const Block& b, size_t panel, size_t word) {
  return b.weights + (panel * b.words + word) * kWordsPerPanelRow;
}

uint32_t* sums_at(const Block& b, size_t row, size_t panel) { return b.sums + row * b.sums_stride + panel * kLanes; }

#if defined(PACELINE_EMULATE_TILES)
template <size_t P>
using CodedTiles = DecodedTiles<P, PlainDecoder>;
#else
template <size_t P>
using CodedTiles = DecodedTiles<P, Avx512Decoder>;
#endif

// Into level 2 while a tile is computed: the same tile of the weights that come after these. Only where few rows read
// weights once: with many they are in level 2 already.
template <size_t RowWords>
void fetch_tile(const uint32_t* weights) {
  for (size_t word = 0; word < kTileWords * RowWords; word += kWordsPerPanelRow) __builtin_prefetch(weights + word, 0, 2);
}

// The macros below take literal tile numbers: the instructions encode them.
#define LOAD_WEIGHTS(FETCHES, TILE, PANEL, WORD)                                             \
  TILE_LOAD(TILE, source.load(PANEL, WORD), kRowBytes);                                      \
  if constexpr (FETCHES) fetch_tile<kRowWords>(ahead + (PANEL * b.words + WORD) * kRowWords)

#define DEFINE_TILE_SUMS(FORMAT, DOT)                                                        \
  template <template <size_t> typename Tiles>                                                \
  void sum_one_by_four_##FORMAT(const Block& b, size_t row, size_t panel) {                  \
    constexpr size_t kRowWords = Tiles<4>::kRowWords;                                        \
    Tiles<4> source(b, panel);                                                               \
    const uint32_t* ahead = ahead_of<4, kRowWords>(b, panel);                                \
    TILE_ZERO(0);                                                                            \
    TILE_ZERO(1);                                                                            \
    TILE_ZERO(2);                                                                            \
    TILE_ZERO(3);                                                                            \
    for (size_t word = 0; word < b.words; word += kTileWords) {                              \
      TILE_LOAD(4, x_at(b, row, word), b.x_stride * 4);                                      \
      LOAD_WEIGHTS(true, 6, 0, word);                                                        \
      DOT(0, 4, 6);                                                                          \
      LOAD_WEIGHTS(true, 7, 1, word);                                                        \
      DOT(1, 4, 7);                                                                          \
      LOAD_WEIGHTS(true, 6, 2, word);                                                        \
      DOT(2, 4, 6);                                                                          \
      LOAD_WEIGHTS(true, 7, 3, word);                                                        \
      DOT(3, 4, 7);                                                                          \
    }                                                                                        \
    TILE_STORE(0, sums_at(b, row, panel), b.sums_stride * 4);                                \
    TILE_STORE(1, sums_at(b, row, panel + 1), b.sums_stride * 4);                            \
    TILE_STORE(2, sums_at(b, row, panel + 2), b.sums_stride * 4);                            \
    TILE_STORE(3, sums_at(b, row, panel + 3), b.sums_stride * 4);                            \
  }                                                                                          \
  template <template <size_t> typename Tiles>                                                \
  void sum_one_by_one_##FORMAT(const Block& b, size_t row, size_t panel) {                   \
    constexpr size_t kRowWords = Tiles<1>::kRowWords;                                        \
    Tiles<1> source(b, panel);                                                               \
    const uint32_t* ahead = ahead_of<1, kRowWords>(b, panel);                                \
    TILE_ZERO(0);                                                                            \
    for (size_t word = 0; word < b.words; word += kTileWords) {                              \
      TILE_LOAD(4, x_at(b, row, word), b.x_stride * 4);                                      \
      LOAD_WEIGHTS(true, 6, 0, word);                                                        \
      DOT(0, 4, 6);                                                                          \
    }                                                                                        \
    TILE_STORE(0, sums_at(b, row, panel), b.sums_stride * 4);                                \
  }                                                                                          \
  template <template <size_t> typename Tiles, bool Fetches>                                  \
  void sum_two_by_two_##FORMAT(const Block& b, size_t row, size_t panel) {                   \
    constexpr size_t kRowWords = Tiles<2>::kRowWords;                                        \
    Tiles<2> source(b, panel);                                                               \
    const uint32_t* ahead = ahead_of<2, kRowWords>(b, panel);                                \
    TILE_ZERO(0);                                                                            \
    TILE_ZERO(1);                                                                            \
    TILE_ZERO(2);                                                                            \
    TILE_ZERO(3);                                                                            \
    for (size_t word = 0; word < b.words; word += kTileWords) {                              \
      TILE_LOAD(4, x_at(b, row, word), b.x_stride * 4);                                      \
      LOAD_WEIGHTS(Fetches, 6, 0, word);                                                     \
      DOT(0, 4, 6);                                                                          \
      TILE_LOAD(5, x_at(b, row + kTileRows, word), b.x_stride * 4);                          \
      DOT(2, 5, 6);                                                                          \
      LOAD_WEIGHTS(Fetches, 7, 1, word);                                                     \
      DOT(1, 4, 7);                                                                          \
      DOT(3, 5, 7);                                                                          \
    }                                                                                        \
    TILE_STORE(0, sums_at(b, row, panel), b.sums_stride * 4);                                \
    TILE_STORE(1, sums_at(b, row, panel + 1), b.sums_stride * 4);                            \
    TILE_STORE(2, sums_at(b, row + kTileRows, panel), b.sums_stride * 4);                    \
    TILE_STORE(3, sums_at(b, row + kTileRows, panel + 1), b.sums_stride * 4);                \
  }

DEFINE_TILE_SUMS(bf16, TILE_BF16)
DEFINE_TILE_SUMS(int8, TILE_INT8)
#undef DEFINE_TILE_SUMS

using TileSum = void (*)(const Block&, size_t, size_t);
struct TileSums {
  TileSum one_by_one, one_by_four, two_by_two;
};

void sum_row_tile(const Block& b, const TileSums& sums, size_t row) {
  size_t panel = 0;
  for (; panel + 4 <= b.panels; panel += 4) sums.one_by_four(b, row, panel);
  for (; panel < b.panels; ++panel) sums.one_by_one(b, row, panel);
}

void sum_two_row_tiles(const Block& b, const TileSums& sums, size_t row) {
  size_t panel = 0;
  for (; panel + 2 <= b.panels; panel += 2) sums.two_by_two(b, row, panel);
  for (; panel < b.panels; ++panel) {
    sums.one_by_one(b, row, panel);
    sums.one_by_one(b, row + kTileRows, panel);
  }
}

void sum_all(const Block& b, const TileSums& sums) {
  size_t row = 0;
  TileConfig config = config_for(kTileRows, kTileRows);
  TILE_CONFIGURE(&config);
  for (; row + 2 * kTileRows <= b.rows; row += 2 * kTileRows) sum_two_row_tiles(b, sums, row);
  for (; row + kTileRows <= b.rows; row += kTileRows) sum_row_tile(b, sums, row);
  if (row < b.rows) {
    config = config_for(b.rows - row, b.rows - row);
    TILE_CONFIGURE(&config);
    sum_row_tile(b, sums, row);
  }
  TILE_RELEASE();
}

// Weights that are decoded for every 32 rows: all rows meet four panels before the next, so that codes come from memory once.
void sum_decoding(const Block& b, const TileSums& sums) {
  constexpr size_t kPanels = 4;
  for (size_t panel = 0; panel < b.panels; panel += kPanels) {
    Block part = b;
    part.panels = std::min(kPanels, b.panels - panel);
    part.weights = b.weights + panel * b.words * kCodedWordsPerPanelRow;
    part.sums = sums_at(b, 0, panel);
    part.book = b.book.from(panel);
    if (panel + kPanels < b.panels) part.ahead = {part.weights + kPanels * b.words * kCodedWordsPerPanelRow};
    sum_all(part, sums);
  }
}

// Two row tiles at a time fetch only what is abreast: behind them lies what is in level 2 already.
void sum(Format format, const Block& block) {
  const bool fetches = block.ahead.fetch == Fetch::kAbreast;
  switch (format) {
    case Format::kF32: return kAvx512Kernels.sum(format, block);
    case Format::kBf16:
      return sum_all(block, {sum_one_by_one_bf16<StoredTiles>, sum_one_by_four_bf16<StoredTiles>,
                             fetches ? sum_two_by_two_bf16<StoredTiles, true> : sum_two_by_two_bf16<StoredTiles, false>});
    case Format::kBf16Coded:
      return (block.rows > kTileRows ? sum_decoding : sum_all)(
          block, {sum_one_by_one_bf16<CodedTiles>, sum_one_by_four_bf16<CodedTiles>, sum_two_by_two_bf16<CodedTiles, true>});
    case Format::kInt8:
      return sum_all(block, {sum_one_by_one_int8<StoredTiles>, sum_one_by_four_int8<StoredTiles>,
                             fetches ? sum_two_by_two_int8<StoredTiles, true> : sum_two_by_two_int8<StoredTiles, false>});
  }
}

void convert_row(Format format, const float* x, size_t k, size_t padded_k, float inverse_step, uint32_t* words) {
  kAvx512Kernels.convert_row(format, x, k, padded_k, inverse_step, words);
}

void split_row(const float* x, size_t k, size_t padded_k, float inverse_step, uint32_t* high, uint32_t* low) {
  kAvx512Kernels.split_row(x, k, padded_k, inverse_step, high, low);
}

float max_abs(const float* x, size_t k) { return kAvx512Kernels.max_abs(x, k); }

void expand(const CodeBook& book, const uint32_t* codes, size_t words, size_t panels, uint32_t* to) {
  kAvx512Kernels.expand(book, codes, words, panels, to);
}

}  // namespace

const Kernels kAmxKernels = {sum, convert_row, max_abs, split_row, expand, kMostDecodings * 2 * kTileRows};

}  // namespace paceline::linear

#pragma GCC pop_options
#endif
