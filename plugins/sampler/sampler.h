// What the parts of the sampler share: how one row is chosen, and who computes it.

#pragma once

#include <cstddef>
#include <cstdint>

namespace paceline::sampler {

// The key of the noise of one row: the same for every batch, step and draft.
struct NoiseKey {
  uint64_t seed;
  uint64_t position;
};

struct Best {
  float logit;
  int32_t token;  // lowest id of those with the largest logit
  bool has_nan;
};

struct Rows {
  // The largest of `count` logits.
  Best (*largest)(const float* logits, size_t count);
  // argmax of logits[i] / temperature + gumbel(key, i) over i with logits[i] / temperature >= lowest.
  int32_t (*noisy_largest)(const float* logits, size_t count, float temperature, float lowest, NoiseKey key);
  // Tokens i with logits[i] / temperature >= lowest, in order, into `tokens`; returns how many.
  size_t (*at_least)(const float* logits, size_t count, float temperature, float lowest, int32_t* tokens);
  // Sum of e^(logits[i] / temperature - shift), in double.
  double (*sum_of_exponentials)(const float* logits, size_t count, float temperature, float shift);
};

extern const Rows kPortableRows;
#if defined(__x86_64__)
extern const Rows kAvx2Rows, kAvx512Rows;
#endif

// Philox4x32-10 for 16 counters at once; word[w][i] is word w of counter i.
// Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3".
//
// Token t gets word (t / 16) % 4 of counter (t / 64) * 16 + t % 16: 64 tokens in a row come from 16 counters, and a
// vector of 16 tokens from one word of each.
constexpr size_t kNoiseTokens = 64;

double gumbel_from_word(uint32_t word);
double gumbel(NoiseKey key, int32_t token);

}  // namespace paceline::sampler
