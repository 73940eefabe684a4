// The decoder in AVX2: a table of 16 bytes is one shuffle.

#pragma once

#include "decode.h"

namespace paceline::linear {
namespace {

class Avx2Decoder {
 public:
  explicit Avx2Decoder(const uint8_t* table)
      : table_(_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)))) {}

  void group(const uint8_t* codes, uint16_t* numbers) const {
    for (size_t part = 0; part < 2; ++part) {  // 16 of the 32 pairs
      const __m256i halves = load(codes + 128 + part * 32);
      words(load(codes + part * 32), halves, numbers + part * 16);
      words(load(codes + 64 + part * 32), _mm256_srli_epi16(halves, 4), numbers + 64 + part * 16);
    }
  }

 private:
  static __m256i load(const uint8_t* at) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)); }

  static void store(uint16_t* at, __m256i bytes, __m256i exponents) {
    const __m256i mask = _mm256_set1_epi16(static_cast<short>(0x807f));
    const __m256i number = _mm256_or_si256(_mm256_and_si256(mask, bytes), _mm256_andnot_si256(mask, exponents));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), number);
  }

  // Two words; codes in the lower halves of the bytes.
  void words(__m256i bytes, __m256i codes, uint16_t* numbers) const {
    const __m256i exponents = _mm256_shuffle_epi8(table_, _mm256_and_si256(codes, _mm256_set1_epi8(15)));
    const __m256i swapped = _mm256_or_si256(_mm256_slli_epi16(bytes, 8), _mm256_srli_epi16(bytes, 8));
    store(numbers, bytes, _mm256_slli_epi16(exponents, 7));
    store(numbers + 32, swapped, _mm256_srli_epi16(exponents, 1));
  }

  __m256i table_;
};

}  // namespace
}  // namespace paceline::linear
