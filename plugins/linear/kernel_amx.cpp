// AMX: a tile of x (16 rows x 16 words) meets a tile of weights (16 words x 16 columns, 1,024 bytes in a row of a panel).
//
//     tmm0-3   sums     one row tile x four panels, or two row tiles x two panels
//     tmm4-5   x        up to 16 rows each
//     tmm6-7   weights
// The words of K are taken in the same order in both shapes, so a row's bits do not depend on which one it met. float32
// has no tile instruction and takes the AVX-512 path.

#include "kernel.h"

#if defined(__x86_64__)

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,amx-tile,amx-bf16,amx-int8")

#include "amx_tiles.h"

namespace paceline::linear {
namespace {

constexpr size_t kTileRows = 16;
constexpr size_t kTileWords = 16;
constexpr size_t kRowBytes = 64;

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

// Into level 2 while a tile is computed: the same 1,024 bytes of the weights that come after these. Only where few rows
// read weights once: with many they are in level 2 already.
inline void fetch_tile(const uint32_t* weights) {
  for (size_t line = 0; line < kTileWords; ++line) __builtin_prefetch(weights + line * kWordsPerPanelRow, 0, 2);
}

// Where the weights begin that this thread reads after those before `panel`.
const uint32_t* behind(const Block& b, size_t panel) {
  if (panel < b.panels || b.next == nullptr) return b.weights + panel * b.words * kWordsPerPanelRow;
  return b.next;
}

// The macros below take literal tile numbers: the instructions encode them.
#define LOAD_WEIGHTS(TILE, PANEL, WORD)                                                      \
  TILE_LOAD(TILE, weights_at(b, panel + PANEL, WORD), kRowBytes);                            \
  fetch_tile(ahead + (PANEL * b.words + WORD) * kWordsPerPanelRow)

#define DEFINE_TILE_SUMS(FORMAT, DOT)                                                        \
  void sum_one_by_four_##FORMAT(const Block& b, size_t row, size_t panel) {                  \
    const uint32_t* ahead = behind(b, panel + 4);                                            \
    TILE_ZERO(0);                                                                            \
    TILE_ZERO(1);                                                                            \
    TILE_ZERO(2);                                                                            \
    TILE_ZERO(3);                                                                            \
    for (size_t word = 0; word < b.words; word += kTileWords) {                              \
      TILE_LOAD(4, x_at(b, row, word), b.x_stride * 4);                                      \
      LOAD_WEIGHTS(6, 0, word);                                                              \
      DOT(0, 4, 6);                                                                          \
      LOAD_WEIGHTS(7, 1, word);                                                              \
      DOT(1, 4, 7);                                                                          \
      LOAD_WEIGHTS(6, 2, word);                                                              \
      DOT(2, 4, 6);                                                                          \
      LOAD_WEIGHTS(7, 3, word);                                                              \
      DOT(3, 4, 7);                                                                          \
    }                                                                                        \
    TILE_STORE(0, sums_at(b, row, panel), b.sums_stride * 4);                                \
    TILE_STORE(1, sums_at(b, row, panel + 1), b.sums_stride * 4);                            \
    TILE_STORE(2, sums_at(b, row, panel + 2), b.sums_stride * 4);                            \
    TILE_STORE(3, sums_at(b, row, panel + 3), b.sums_stride * 4);                            \
  }                                                                                          \
  void sum_one_by_one_##FORMAT(const Block& b, size_t row, size_t panel) {                   \
    const uint32_t* ahead = behind(b, panel + 1);                                            \
    TILE_ZERO(0);                                                                            \
    for (size_t word = 0; word < b.words; word += kTileWords) {                              \
      TILE_LOAD(4, x_at(b, row, word), b.x_stride * 4);                                      \
      LOAD_WEIGHTS(6, 0, word);                                                              \
      DOT(0, 4, 6);                                                                          \
    }                                                                                        \
    TILE_STORE(0, sums_at(b, row, panel), b.sums_stride * 4);                                \
  }                                                                                          \
  void sum_two_by_two_##FORMAT(const Block& b, size_t row, size_t panel) {                   \
    TILE_ZERO(0);                                                                            \
    TILE_ZERO(1);                                                                            \
    TILE_ZERO(2);                                                                            \
    TILE_ZERO(3);                                                                            \
    for (size_t word = 0; word < b.words; word += kTileWords) {                              \
      TILE_LOAD(4, x_at(b, row, word), b.x_stride * 4);                                      \
      TILE_LOAD(6, weights_at(b, panel, word), kRowBytes);                                   \
      DOT(0, 4, 6);                                                                          \
      TILE_LOAD(5, x_at(b, row + kTileRows, word), b.x_stride * 4);                          \
      DOT(2, 5, 6);                                                                          \
      TILE_LOAD(7, weights_at(b, panel + 1, word), kRowBytes);                               \
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

void sum(Format format, const Block& block) {
  switch (format) {
    case Format::kF32: return kAvx512Kernels.sum(format, block);
    case Format::kBf16: return sum_all(block, {sum_one_by_one_bf16, sum_one_by_four_bf16, sum_two_by_two_bf16});
    case Format::kInt8: return sum_all(block, {sum_one_by_one_int8, sum_one_by_four_int8, sum_two_by_two_int8});
  }
}

void convert_row(Format format, const float* x, size_t k, size_t padded_k, float inverse_step, uint32_t* words) {
  kAvx512Kernels.convert_row(format, x, k, padded_k, inverse_step, words);
}

void split_row(const float* x, size_t k, size_t padded_k, float inverse_step, uint32_t* high, uint32_t* low) {
  kAvx512Kernels.split_row(x, k, padded_k, inverse_step, high, low);
}

float max_abs(const float* x, size_t k) { return kAvx512Kernels.max_abs(x, k); }

}  // namespace

const Kernels kAmxKernels = {sum, convert_row, max_abs, split_row};

}  // namespace paceline::linear

#pragma GCC pop_options
#endif
