// Coded weights of one panel back to bfloat16, in plain C++; the vector paths have a `Decoder` of their own.

#pragma once

#include "coded.h"

namespace paceline::linear {
namespace {

struct PlainDecoder {
  const uint8_t* exponents;

  explicit PlainDecoder(const uint8_t* table) : exponents(table) {}

  // One group: 192 bytes of codes to 128 numbers.
  void group(const uint8_t* codes, uint16_t* numbers) const {
    for (size_t pair = 0; pair < 4; ++pair) {
      const uint8_t *bytes = codes + pair / 2 * 64, *halves = codes + 128;
      const size_t own = pair % 2;  // which byte of the pair has this word's mantissa; the other one has its sign
      for (size_t i = 0; i < 32; ++i) {
        const uint32_t sign = bytes[2 * i + 1 - own] >> 7, mantissa = bytes[2 * i + own] & 0x7f;
        const uint32_t exponent = exponents[halves[2 * i + own] >> pair / 2 * 4 & 15];
        numbers[pair * 32 + i] = static_cast<uint16_t>(sign << 15 | exponent << 7 | mantissa);
      }
    }
  }
};

// `words` words, from `word` of a panel on; `next` is the first escape that is not in a place before them.
template <typename Decoder>
inline void decode_words(const Decoder& decoder, const uint8_t* codes, size_t word, size_t words, const Escape*& next,
                         const Escape* last, uint16_t* numbers) {
  for (size_t i = 0; i < words; i += kGroupWords)
    decoder.group(codes + (word + i) / kGroupWords * kGroupCodeBytes, numbers + i * 32);
  for (; next != last && next->place < (word + words) * 32; ++next) numbers[next->place - word * 32] = next->bits;
}

// Panels as bfloat16 words. Codes of the next panel are on their way while one is decoded.
template <typename Decoder>
void expand_panels(const CodeBook& book, const uint32_t* codes, size_t words, size_t panels, uint32_t* to) {
  const Decoder decoder(book.exponents);
  const size_t panel_bytes = words / kGroupWords * kGroupCodeBytes;
  for (size_t panel = 0; panel < panels; ++panel) {
    const Escape *next = book.escapes + book.first_escape[panel], *last = book.escapes + book.first_escape[panel + 1];
    const auto* bytes = reinterpret_cast<const uint8_t*>(codes) + panel * panel_bytes;
    decode_words(decoder, bytes, 0, words, next, last, reinterpret_cast<uint16_t*>(to + panel * words * 16));
  }
}

}  // namespace
}  // namespace paceline::linear
