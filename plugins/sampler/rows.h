// Passes over one row of logits; compiled once per instruction set.
//
// The exact noise, two logarithms in double, is computed only where it can matter. With u = (word + 1/2) / 2^32 and
// v = 2^32 - word, -log(-log u) <= -log(1 - u) <= ln 2 * (32 - log2(v)) + a little, and log2(v) is bounded from below
// by the bits of v as a float: log2(1 + m) >= m on [0, 1]. So a cheap bound rules out nearly every token.

#pragma once

#include <cstring>

#include "noise.h"

namespace paceline::sampler {
namespace {

constexpr float kLargestNoise = 22.9f;  // -log(-log(1 - 2^-33)) = 22.87

// A float below `score` by more than what rounding of scaled logits and bounds can add up to.
inline float safely_below(double score) {
  const auto value = static_cast<float>(score);
  return value - 1e-3f - (value < 0 ? -value : value) * 1e-6f;
}

// Loops over 16 lanes or 64 tokens at a time without an early way out: compilers make vectors of these.

// Four vectors of candidates, so that no comparison waits for the one before it.
inline Best largest_of(const float* logits, size_t count) {
  constexpr size_t kCandidates = 64;
  float candidate[kCandidates];
  int32_t nan[kCandidates] = {};
  for (float& value : candidate) value = -__builtin_inff();
  size_t i = 0;
  for (; i + kCandidates <= count; i += kCandidates) {
    // The rows were written by all threads: 8 KB ahead, 8 rows took 123 us in a step where they had taken 165.
    for (size_t j = 0; j < kCandidates; j += 16) __builtin_prefetch(logits + i + j + 2048);
    for (size_t j = 0; j < kCandidates; ++j) {
      const float logit = logits[i + j];
      int32_t bits;
      std::memcpy(&bits, &logit, sizeof bits);
      candidate[j] = logit > candidate[j] ? logit : candidate[j];
      nan[j] |= (bits & 0x7fffffff) > 0x7f800000 ? -1 : 0;
    }
  }
  Best best{-__builtin_inff(), 0, false};
  for (size_t j = 0; j < kCandidates; ++j) {
    best.logit = candidate[j] > best.logit ? candidate[j] : best.logit;
    best.has_nan |= nan[j] != 0;
  }
  for (; i < count; ++i) {
    best.logit = logits[i] > best.logit ? logits[i] : best.logit;
    best.has_nan |= logits[i] != logits[i];
  }
  return best;
}

inline size_t first_equal(const float* logits, size_t count, float value) {
  for (size_t begin = 0; begin < count; begin += 64) {
    const size_t here = count - begin < 64 ? count - begin : 64;
    int any = 0;
    for (size_t i = 0; i < here; ++i) any |= logits[begin + i] == value;
    if (!any) continue;
    size_t i = begin;
    while (logits[i] != value) ++i;
    return i;
  }
  return 0;
}

Best largest(const float* logits, size_t count) {
  Best best = largest_of(logits, count);
  best.token = static_cast<int32_t>(first_equal(logits, count, best.logit));
  return best;
}

size_t at_least(const float* logits, size_t count, float temperature, float lowest, int32_t* tokens) {
  size_t found = 0;
  for (size_t begin = 0; begin < count; begin += 64) {
    const size_t here = count - begin < 64 ? count - begin : 64;
    int any = 0;
    for (size_t i = 0; i < here; ++i) any |= logits[begin + i] / temperature >= lowest;
    if (!any) continue;
    for (size_t i = begin; i < begin + here; ++i)
      if (logits[i] / temperature >= lowest) tokens[found++] = static_cast<int32_t>(i);
  }
  return found;
}

// Never below the exact noise of `word`.
inline float noise_bound(uint32_t word) {
  const float rest = static_cast<float>(0xffffffffu - word) + 0.5f;
  int32_t bits;
  std::memcpy(&bits, &rest, sizeof bits);
  constexpr float kLn2 = 0.69314718f, kSlack = 1e-3f;
  return kLn2 * (159.0f - static_cast<float>(bits) * 0x1p-23f) + kSlack;
}

struct Choice {
  double score;
  int32_t token;
};

// Looks at up to 16 tokens whose words are `words`.
inline void choose_among(const float* scaled, const uint32_t* words, size_t count, int32_t first, float lowest,
                         Choice& choice) {
  float bound[16];
  int any = 0;
  const float best = safely_below(choice.score);
  for (size_t i = 0; i < count; ++i) {
    bound[i] = scaled[i] + noise_bound(words[i]);
    any |= (bound[i] >= best) & (scaled[i] >= lowest);
  }
  if (!any) return;
  for (size_t i = 0; i < count; ++i) {
    if (bound[i] < best || scaled[i] < lowest) continue;
    const double score = static_cast<double>(scaled[i]) + gumbel_from_word(words[i]);
    if (score > choice.score) choice = {score, first + static_cast<int32_t>(i)};
  }
}

int32_t noisy_largest(const float* logits, size_t count, float temperature, float lowest, NoiseKey key) {
  Choice choice{-__builtin_inf(), -1};
  for (size_t begin = 0; begin < count; begin += kNoiseTokens) {
    const size_t here = count - begin < kNoiseTokens ? count - begin : kNoiseTokens;
    float scaled[kNoiseTokens];
    int any = 0;
    const float enough = safely_below(choice.score) - kLargestNoise;
    for (size_t i = 0; i < here; ++i) {
      scaled[i] = logits[begin + i] / temperature;
      any |= scaled[i] >= enough;
    }
    if (!any) continue;
    const NoiseWords noise = noise_words(key, static_cast<uint32_t>(begin / kNoiseTokens * kCounters));
    for (size_t i = 0; i < here; i += 16)
      choose_among(scaled + i, noise.word[i / 16], here - i < 16 ? here - i : 16, static_cast<int32_t>(begin + i), lowest,
                   choice);
  }
  return choice.token;
}

double sum_of_exponentials(const float* logits, size_t count, float temperature, float shift) {
  double total = 0;
  for (size_t i = 0; i < count; i += 16) {
    float terms[16] = {};
    const size_t here = count - i < 16 ? count - i : 16;
    float shifted[16];
    for (size_t j = 0; j < 16; ++j) shifted[j] = j < here ? logits[i + j] / temperature - shift : -100.0f;
    exp(Lanes::load(shifted)).store(terms);
    float sum = 0;
    for (float term : terms) sum += term;
    total += sum;
  }
  return total;
}

}  // namespace
}  // namespace paceline::sampler
