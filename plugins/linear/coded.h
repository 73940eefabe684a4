// bfloat16 weights in 12 bits instead of 16, and not a bit lost: what waits for memory reads a quarter less of it.
//
// Trained weights use few of bfloat16's 256 exponents: the 16 most frequent of a matrix cover all but some weights in a
// thousand. Signs and mantissas stay as they are, exponents become numbers of a table of 16, and the weights that have
// another exponent, the escapes, lie in a list and overwrite what was decoded in their places. Huffman codes (DFloat11,
// arXiv 2504.11651) save a little more and lost: a CPU cannot decode them as fast as it reads memory.
//
//     codes [panels, words / 4, 192 bytes]     a group: four words A B C D of the 16 columns, 32 bfloat16 each
//         0 ..  63    32 pairs of bytes: sign of B, mantissa of A; then sign of A, mantissa of B
//        64 .. 127    the same of C and D
//       128 .. 191    32 pairs of bytes: codes of A (low half) and C; then of B and D
//
// Decoded, a panel is what kernel.h says of bf16.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace paceline::linear {

constexpr size_t kGroupWords = 4;
constexpr size_t kGroupCodeBytes = 192;
constexpr size_t kCodedWordsPerPanelRow = kGroupCodeBytes / 4 / kGroupWords;  // 32-bit words: 12 for 16

// A weight whose exponent is not in the table: `place` counts the decoded panel's 16-bit numbers.
struct Escape {
  uint32_t place;
  uint16_t bits;
};

// What is needed beside the codes, of the panels from some panel on.
struct CodeBook {
  const uint8_t* exponents = nullptr;      // [16]
  const Escape* escapes = nullptr;         // of all panels, in the order of their places
  const uint32_t* first_escape = nullptr;  // [panels + 1]

  CodeBook from(size_t panel) const { return {exponents, escapes, first_escape + panel}; }
};

// The code book of a whole matrix, out of the op's inputs: places count the numbers of all panels.
class OwnedCodeBook {
 public:
  OwnedCodeBook() = default;
  OwnedCodeBook(const uint8_t* exponents, const int64_t* places, const uint16_t* bits, size_t count, size_t panels,
                size_t panel_numbers)
      : exponents_(exponents, exponents + 16), escapes_(count), first_escape_(panels + 1) {
    for (size_t i = 0; i < count; ++i) {
      const auto place = static_cast<size_t>(places[i]);
      escapes_[i] = {static_cast<uint32_t>(place % panel_numbers), bits[i]};
    }
    for (size_t panel = 0; panel <= panels; ++panel) {
      const auto begin = static_cast<int64_t>(panel * panel_numbers);
      first_escape_[panel] = static_cast<uint32_t>(std::lower_bound(places, places + count, begin) - places);
    }
  }
  CodeBook view() const { return {exponents_.data(), escapes_.data(), first_escape_.data()}; }

 private:
  std::vector<uint8_t> exponents_;
  std::vector<Escape> escapes_;
  std::vector<uint32_t> first_escape_;
};

}  // namespace paceline::linear
