// The decoder in AVX-512: 15 instructions for 128 weights.

#pragma once

#include "decode.h"

namespace paceline::linear {
namespace {

class Avx512Decoder {
 public:
  explicit Avx512Decoder(const uint8_t* table)
      : table_(_mm512_maskz_broadcast_i32x4(0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(table)))) {}

  void group(const uint8_t* codes, uint16_t* numbers) const {
    const __m512i halves = _mm512_loadu_si512(codes + 128);
    words(_mm512_loadu_si512(codes), halves, numbers);
    words(_mm512_loadu_si512(codes + 64), _mm512_srli_epi16(halves, 4), numbers + 64);
  }

 private:
  // Sign and mantissa of `bytes`, all else of `exponents`.
  static void store(uint16_t* at, __m512i bytes, __m512i exponents) {
    constexpr int kSelect = 0xca;
    const __m512i mask = _mm512_set1_epi16(static_cast<short>(0x807f));
    _mm512_storeu_si512(at, _mm512_ternarylogic_epi32(mask, bytes, exponents, kSelect));
  }

  // Two words; codes in the lower halves of the bytes.
  void words(__m512i bytes, __m512i codes, uint16_t* numbers) const {
    const __m512i swap = _mm512_set4_epi32(0x0e0f0c0d, 0x0a0b0809, 0x06070405, 0x02030001);
    const __m512i exponents = _mm512_shuffle_epi8(table_, _mm512_and_si512(codes, _mm512_set1_epi8(15)));
    store(numbers, bytes, _mm512_slli_epi16(exponents, 7));
    store(numbers + 32, _mm512_shuffle_epi8(bytes, swap), _mm512_srli_epi16(exponents, 1));
  }

  __m512i table_;
};

}  // namespace
}  // namespace paceline::linear
