// The one inner product behind all three linear ops, and the instruction sets that compute it.
//
// Everything is counted in words of 32 bits along K. A word of x is one float, two bf16 or four u8; the weights that
// meet it are 64 bytes: the same word for each of a panel's 16 columns. So all formats share one loop:
//
//     x        [rows, words]            words of a row back to back
//     weights  [panels, words, 16]      one panel: 16 columns, 64 bytes a word
//     sums     [rows, panels * 16]      float (f32, bf16) or int32 (int8)
//
// Batch invariance: every sum is one accumulator that takes the words in order, whatever `rows` and `panels` are.

#pragma once

#include <cstddef>
#include <cstdint>

namespace paceline::linear {

enum class Format { kF32, kBf16, kInt8 };

constexpr float kRow8Levels = 127.0f;
constexpr float kRow16Levels = 32512.0f; // 127 * 256: the high byte of the largest step is 127

constexpr size_t kLanes = 16;            // columns of a panel
constexpr size_t kWordsPerPanelRow = 16; // 32-bit words in one 64-byte row of a panel

// One block of work. Any number of rows and panels; a kernel blocks them as its registers allow.
struct Block {
  const uint32_t* x;
  size_t x_stride;  // words from row to row
  size_t rows;
  const uint32_t* weights;
  size_t words;
  size_t panels;
  uint32_t* sums;
  size_t sums_stride;    // words from row to row
  const uint32_t* next;  // what this thread will read after these weights, or null: fetched ahead, never read here
};

// The kernels of one instruction set. `convert_row` makes words of x from floats: `inverse_step` is 127 / max|x| for
// int8 and unused otherwise; from `k` to `padded_k` the row is filled with zeros (for int8 with 128, its zero).
// `split_row` makes two rows of int8 words whose sums, 256 * high + low, are those of 16-bit steps: `inverse_step` is
// kRow16Levels / max|x|.
struct Kernels {
  void (*sum)(Format format, const Block& block);
  void (*convert_row)(Format format, const float* x, size_t k, size_t padded_k, float inverse_step, uint32_t* words);
  float (*max_abs)(const float* x, size_t k);
  void (*split_row)(const float* x, size_t k, size_t padded_k, float inverse_step, uint32_t* high, uint32_t* low);
};

extern const Kernels kPortableKernels;
#if defined(__x86_64__)
extern const Kernels kAvx2Kernels, kAvx512Kernels, kAmxKernels;
#endif

const Kernels& kernels_for_this_machine();

}  // namespace paceline::linear
