// Philox4x32-10, sixteen counters side by side; plain loops that compilers turn into vectors.

#pragma once

#include "sampler.h"

namespace paceline::sampler {
namespace {

constexpr size_t kCounters = 16;

struct NoiseWords {
  uint32_t word[4][kCounters];
};

inline __attribute__((always_inline)) NoiseWords noise_words(NoiseKey key, uint32_t first_counter) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
  constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  NoiseWords n;
  for (size_t i = 0; i < kCounters; ++i) {
    n.word[0][i] = first_counter + static_cast<uint32_t>(i);
    n.word[1][i] = static_cast<uint32_t>(key.position);
    n.word[2][i] = static_cast<uint32_t>(key.position >> 32);
    n.word[3][i] = 0;
  }
  uint32_t key0 = static_cast<uint32_t>(key.seed), key1 = static_cast<uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round, key0 += kWeyl0, key1 += kWeyl1) {
    for (size_t i = 0; i < kCounters; ++i) {
      const uint64_t product0 = static_cast<uint64_t>(kMultiplier0) * n.word[0][i];
      const uint64_t product1 = static_cast<uint64_t>(kMultiplier1) * n.word[2][i];
      n.word[0][i] = static_cast<uint32_t>(product1 >> 32) ^ n.word[1][i] ^ key0;
      n.word[2][i] = static_cast<uint32_t>(product0 >> 32) ^ n.word[3][i] ^ key1;
      n.word[1][i] = static_cast<uint32_t>(product1);
      n.word[3][i] = static_cast<uint32_t>(product0);
    }
  }
  return n;
}

}  // namespace
}  // namespace paceline::sampler
