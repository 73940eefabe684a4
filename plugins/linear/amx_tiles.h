// AMX tile instructions under short names, or the same in plain C++ where PACELINE_EMULATE_TILES is defined.
//
// The emulation exists for tests on machines without AMX: it checks our index arithmetic. Its float sums take the two
// products of a pair one after the other; hardware adds even and odd products in its own fixed order and flushes
// denormals (Intel SDM vol. 2, TDPBF16PS), so bits agree only for int8.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace paceline::linear {

// Layout of the 64 bytes that LDTILECFG reads (Intel SDM vol. 1, 18.2).
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

}  // namespace paceline::linear

#if defined(PACELINE_EMULATE_TILES)

namespace paceline::linear {

struct EmulatedTiles {
  TileConfig config;
  uint32_t word[8][16][16];
};

inline EmulatedTiles& emulated() {
  static thread_local EmulatedTiles tiles;
  return tiles;
}

inline void emulated_load(int tile, const void* base, size_t stride) {
  EmulatedTiles& t = emulated();
  for (int row = 0; row < t.config.rows[tile]; ++row)
    std::memcpy(t.word[tile][row], static_cast<const char*>(base) + row * stride, t.config.row_bytes[tile]);
}

inline void emulated_store(int tile, void* base, size_t stride) {
  EmulatedTiles& t = emulated();
  for (int row = 0; row < t.config.rows[tile]; ++row)
    std::memcpy(static_cast<char*>(base) + row * stride, t.word[tile][row], t.config.row_bytes[tile]);
}

inline float emulated_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline void emulated_bf16(uint32_t& sum, uint32_t x, uint32_t w) {
  float value = emulated_float(sum);
  value += emulated_float(x << 16) * emulated_float(w << 16);
  value += emulated_float(x & 0xffff0000u) * emulated_float(w & 0xffff0000u);
  std::memcpy(&sum, &value, sizeof value);
}

inline void emulated_int8(uint32_t& sum, uint32_t x, uint32_t w) {
  for (int shift = 0; shift < 32; shift += 8)
    sum += static_cast<uint32_t>(static_cast<int>(x >> shift & 0xff) * static_cast<int8_t>(w >> shift & 0xff));
}

template <typename Step>
void emulated_dot(int c, int a, int b, Step step) {
  EmulatedTiles& t = emulated();
  for (int row = 0; row < t.config.rows[c]; ++row)
    for (int word = 0; word < t.config.row_bytes[a] / 4; ++word)
      for (int lane = 0; lane < t.config.row_bytes[c] / 4; ++lane)
        step(t.word[c][row][lane], t.word[a][row][word], t.word[b][word][lane]);
}

}  // namespace paceline::linear

#define TILE_CONFIGURE(config_pointer) (emulated().config = *(config_pointer))
#define TILE_RELEASE() ((void)0)
#define TILE_ZERO(tile) std::memset(emulated().word[tile], 0, sizeof emulated().word[tile])
#define TILE_LOAD(tile, base, stride) emulated_load(tile, base, stride)
#define TILE_STORE(tile, base, stride) emulated_store(tile, base, stride)
#define TILE_BF16(c, a, b) emulated_dot(c, a, b, emulated_bf16)
#define TILE_INT8(c, a, b) emulated_dot(c, a, b, emulated_int8)

#else

#include <immintrin.h>

#define TILE_CONFIGURE(config_pointer) _tile_loadconfig(config_pointer)
#define TILE_RELEASE() _tile_release()
#define TILE_ZERO(tile) _tile_zero(tile)
#define TILE_LOAD(tile, base, stride) _tile_loadd(tile, base, stride)
#define TILE_STORE(tile, base, stride) _tile_stored(tile, base, stride)
#define TILE_BF16(c, a, b) _tile_dpbf16ps(c, a, b)
#define TILE_INT8(c, a, b) _tile_dpbusd(c, a, b)

#endif
