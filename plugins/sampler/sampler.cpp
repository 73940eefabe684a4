// Coupled sampling of all chains of a step in one call.
//
//     token = argmax over ids of  processed logit / temperature + gumbel(seed, position, id)
//
// processed: repetition penalty, presence and frequency penalties, bias; then top-k, top-p and min-p each keep the ids
// whose logit is high enough. All three are thresholds on one sorted list, ties going to the lowest id. A chain's rows
// are taken in order and end with the first whose token differs from the draft.

#include "sampler.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "../native/cpu.h"
#include "noise.h"

namespace paceline::sampler {

double gumbel_from_word(uint32_t word) {
  const double u = (static_cast<double>(word) + 0.5) * 0x1p-32;
  return -std::log(-std::log(u));
}

double gumbel(NoiseKey key, int32_t token) {
  const auto t = static_cast<uint32_t>(token);
  const uint32_t first = t / 64 * 16;
  return gumbel_from_word(noise_words(key, first).word[t / 16 % 4][t % 16]);
}

namespace {

// One request's rows, as runtime/sample.py lays them out. Keep both in step.
struct Chain {
  int64_t row;
  int64_t position;
  uint64_t seed;
  const int64_t* draft;
  const int64_t* pending;
  const int32_t* seen_ids;        // tokens of prompt and output
  const int32_t* seen_in_output;  // how often the output holds each
  const int32_t* bias_ids;
  const float* bias_values;
  int64_t* tokens;  // out: up to num_draft + 1
  int32_t num_draft, num_pending, num_seen, num_bias;
  int32_t num_tokens;  // out
  int32_t top_k;
  float temperature, top_p, min_p;
  float repetition_penalty, presence_penalty, frequency_penalty;
};

struct Seen {
  int32_t id, in_output;
};

const Rows& rows_for_this_machine() {
#if defined(__x86_64__)
  if (isa() >= Isa::kAvx512) return kAvx512Rows;
  if (isa() == Isa::kAvx2) return kAvx2Rows;
#endif
  return kPortableRows;
}

bool has_penalties(const Chain& chain) {
  return chain.repetition_penalty != 1 || chain.presence_penalty != 0 || chain.frequency_penalty != 0;
}

// Tokens that count for penalties before the first row of the chain.
std::vector<Seen> seen_before(const Chain& chain) {
  std::vector<Seen> seen;
  if (!has_penalties(chain)) return seen;
  for (int32_t i = 0; i < chain.num_seen; ++i) seen.push_back({chain.seen_ids[i], chain.seen_in_output[i]});
  return seen;
}

void see(const Chain& chain, std::vector<Seen>& seen, int64_t token) {
  if (!has_penalties(chain)) return;
  const auto id = static_cast<int32_t>(token);
  for (Seen& one : seen)
    if (one.id == id) {
      ++one.in_output;
      return;
    }
  seen.push_back({id, 1});
}

void penalize(const Chain& chain, const std::vector<Seen>& seen, float* logits) {
  for (const Seen& one : seen) {
    float& logit = logits[one.id];
    logit = logit > 0 ? logit / chain.repetition_penalty : logit * chain.repetition_penalty;
    logit -= chain.frequency_penalty * static_cast<float>(one.in_output);
    if (one.in_output > 0) logit -= chain.presence_penalty;
  }
}

// The row itself, or a copy with penalties and bias in `copy`.
const float* processed(const Chain& chain, const std::vector<Seen>& seen, const float* row, size_t vocab,
                       std::vector<float>& copy) {
  if (!has_penalties(chain) && chain.num_bias == 0) return row;
  copy.assign(row, row + vocab);
  penalize(chain, seen, copy.data());
  for (int32_t i = 0; i < chain.num_bias; ++i) copy[static_cast<size_t>(chain.bias_ids[i])] += chain.bias_values[i];
  return copy.data();
}

struct Candidate {
  float scaled;
  int32_t token;
};

bool comes_before(const Candidate& a, const Candidate& b) {
  return a.scaled != b.scaled ? a.scaled > b.scaled : a.token < b.token;
}

std::vector<Candidate> candidates_from(const Rows& rows, const float* logits, size_t vocab, float temperature,
                                       float lowest) {
  static thread_local std::vector<int32_t> tokens;
  if (tokens.size() < vocab) tokens.resize(vocab);
  const size_t count = rows.at_least(logits, vocab, temperature, lowest, tokens.data());
  std::vector<Candidate> found(count);
  for (size_t i = 0; i < count; ++i) found[i] = {logits[static_cast<size_t>(tokens[i])] / temperature, tokens[i]};
  return found;
}

// The best `count` in front, sorted; the rest behind them in any order.
void sort_best(std::vector<Candidate>& candidates, size_t first, size_t count) {
  const auto begin = candidates.begin() + static_cast<ptrdiff_t>(first), end = begin + static_cast<ptrdiff_t>(count);
  if (end != candidates.end()) std::nth_element(begin, end - 1, candidates.end(), comes_before);
  std::sort(begin, end, comes_before);
}

// The best `top_k`, looked for among the few near the top first; sorted.
std::vector<Candidate> top_k_candidates(const Chain& chain, const Rows& rows, const float* logits, size_t vocab,
                                        float shift) {
  const auto k = std::min(static_cast<size_t>(chain.top_k), vocab);
  for (const float depth : {4.0f, 8.0f, 16.0f, __builtin_inff()}) {
    std::vector<Candidate> found = candidates_from(rows, logits, vocab, chain.temperature, shift - depth);
    if (found.size() < k && depth < __builtin_inff()) continue;
    sort_best(found, 0, std::min(k, found.size()));
    found.resize(std::min(k, found.size()));
    return found;
  }
  return {};
}

double weight_of(const Candidate& candidate, float shift) {
  return std::exp(static_cast<double>(candidate.scaled) - shift);
}

double total_of(const std::vector<Candidate>& candidates, float shift) {
  double sum = 0;
  for (const Candidate& one : candidates) sum += weight_of(one, shift);
  return sum;
}

// Keeps the fewest of the best whose share of `total` reaches top_p, sorted piece by growing piece; false if all
// candidates together do not.
bool keep_nucleus(std::vector<Candidate>& candidates, float top_p, float shift, double total) {
  double sum = 0;
  size_t sorted = 0;
  for (size_t piece = 256; sorted < candidates.size(); piece *= 4) {
    const size_t count = std::min(piece, candidates.size() - sorted);
    sort_best(candidates, sorted, count);
    for (const size_t end = sorted + count; sorted < end; ++sorted) {
      sum += weight_of(candidates[sorted], shift);
      if (sum < static_cast<double>(top_p) * total) continue;
      candidates.resize(sorted + 1);
      return true;
    }
  }
  return false;
}

// Sorted candidates after top-k and top-p. Without top-k the list of all ids is long and its head is what matters:
// it is taken in growing depths.
std::vector<Candidate> kept_candidates(const Chain& chain, const Rows& rows, const float* logits, size_t vocab,
                                       float largest) {
  const float shift = largest / chain.temperature;
  if (chain.top_k > 0) {
    std::vector<Candidate> best = top_k_candidates(chain, rows, logits, vocab, shift);
    if (chain.top_p < 1) keep_nucleus(best, chain.top_p, shift, total_of(best, shift));
    return best;
  }
  const double total = rows.sum_of_exponentials(logits, vocab, chain.temperature, shift);
  std::vector<Candidate> best;
  for (const float depth : {4.0f, 8.0f, 16.0f, __builtin_inff()}) {
    best = candidates_from(rows, logits, vocab, chain.temperature, shift - depth);
    if (keep_nucleus(best, chain.top_p, shift, total)) break;
  }
  return best;  // all of them where rounding keeps the sum below top_p
}

float min_p_bound(const Chain& chain, float largest) {
  return chain.min_p > 0 ? largest / chain.temperature + std::log(chain.min_p) : -__builtin_inff();
}

int32_t noisy_best(const std::vector<Candidate>& candidates, float lowest, NoiseKey key) {
  double best = -__builtin_inf();
  int32_t token = candidates.front().token;
  for (const Candidate& one : candidates) {
    if (one.scaled < lowest) break;
    const double score = static_cast<double>(one.scaled) + gumbel(key, one.token);
    if (score > best || (score == best && one.token < token)) {
      best = score;
      token = one.token;
    }
  }
  return token;
}

// Whether `kept` is exactly what has at least the logit of its last: then one pass over the row does, whose noise comes
// sixteen tokens at a time.
bool is_a_threshold(const std::vector<Candidate>& kept, const Chain& chain, const Rows& rows, const float* logits,
                    size_t vocab) {
  constexpr size_t kFew = 64;
  return kept.size() > kFew &&
         candidates_from(rows, logits, vocab, chain.temperature, kept.back().scaled).size() == kept.size();
}

// -1 when the row holds NaN.
int32_t choose(const Chain& chain, const Rows& rows, const float* logits, size_t vocab, int64_t position) {
  const Best best = rows.largest(logits, vocab);
  if (best.has_nan) return -1;
  if (chain.temperature == 0) return best.token;
  const NoiseKey key{chain.seed, static_cast<uint64_t>(position)};
  const float lowest = min_p_bound(chain, best.logit);
  float bound = lowest;
  if (chain.top_k > 0 || chain.top_p < 1) {
    const std::vector<Candidate> kept = kept_candidates(chain, rows, logits, vocab, best.logit);
    if (!is_a_threshold(kept, chain, rows, logits, vocab)) return noisy_best(kept, lowest, key);
    bound = std::max(lowest, kept.back().scaled);
  }
  const int32_t token = rows.noisy_largest(logits, vocab, chain.temperature, bound, key);
  return token < 0 ? best.token : token;
}

// Returns the index of the row that holds NaN, or -1.
int64_t sample_chain(Chain& chain, const Rows& rows, const float* logits, size_t vocab, std::vector<float>& copy) {
  std::vector<Seen> seen = seen_before(chain);
  for (int32_t i = 0; i < chain.num_pending; ++i) see(chain, seen, chain.pending[i]);
  chain.num_tokens = 0;
  for (int32_t depth = 0; depth <= chain.num_draft; ++depth) {
    const int64_t row = chain.row + depth;
    const float* ready = processed(chain, seen, logits + static_cast<size_t>(row) * vocab, vocab, copy);
    const int32_t token = choose(chain, rows, ready, vocab, chain.position + depth);
    if (token < 0) return row;
    chain.tokens[chain.num_tokens++] = token;
    if (depth == chain.num_draft || chain.draft[depth] != token) break;
    see(chain, seen, token);
  }
  return -1;
}

}  // namespace
}  // namespace paceline::sampler

// Returns -1, or the row of logits that holds NaN.
extern "C" int64_t paceline_sample(const float* logits, int64_t vocab, void* chains, int64_t num_chains) {
  using namespace paceline::sampler;
  auto* all = static_cast<Chain*>(chains);
  const Rows& rows = rows_for_this_machine();
  std::vector<float> copy;
  for (int64_t i = 0; i < num_chains; ++i) {
    const int64_t bad = sample_chain(all[i], rows, logits, static_cast<size_t>(vocab), copy);
    if (bad >= 0) return bad;
  }
  return -1;
}
