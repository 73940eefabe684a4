"""Same tokens, on compiled engines: bf16 and int8, a tiny model and the real one, the native sampler, a real draft.

tests/runtime/test_same_tokens.py is the same test on a toy whose every cache cell is checked; there the planted bugs
are. A failure names its scenario's seed. `make test-long` compares 20 times as many tokens.
"""

from collections import Counter
from pathlib import Path

import pytest
from engine_scenario import Pair, run_scenario
from tiny_bundles import tiny_bundle

from paceline.runtime.bundle import open_bundle
from paceline.runtime.engine_cpu import CpuEngine
from paceline.runtime.tokenizer import BundleTokenizer
from paceline.toolchain.prompts import PROMPTS

NUM_PAGES = 256
TINY_TOKENS = 10_000  # for each format, so 20,000 a run
REAL_TOKENS = 1_000


def pair_of(bundle_folder: Path, longest_output: int) -> Pair:
    bundle = open_bundle(bundle_folder)
    engines = [
        CpuEngine.open(bundle.engine(role, "cpu")[1], bundle.role(role).facts, NUM_PAGES, threads=2, num_engines=2)
        for role in ("target", "draft")
    ]
    tokenizer = BundleTokenizer(bundle)
    texts = [tokenizer.encode(text) for prompts in PROMPTS.values() for text in prompts]
    return Pair(engines[0], engines[1], texts, frozenset(bundle.generation_config()["eos_token_id"]), longest_output)


def compare(pair: Pair, least_tokens: int, first_seed: int) -> Counter[str]:
    totals: Counter[str] = Counter()
    seed = first_seed
    while totals["tokens"] < least_tokens:
        totals += run_scenario(pair, seed)
        seed += 1
        assert seed - first_seed < least_tokens, "the traffic writes next to nothing"
    return totals


@pytest.mark.parametrize("weights", ["bf16", "int8"])
def test_a_tiny_model_gives_every_request_its_own_tokens(weights: str, tmp_path: Path, repetitions: int) -> None:
    bundle = tiny_bundle(tmp_path, quantization={"weights": weights})
    totals = compare(pair_of(bundle, longest_output=120), repetitions * TINY_TOKENS, first_seed=0)
    for what, least in (("cancelled", 5), ("preempted", 10), ("hit", 500), ("accepted", 500), ("rejected", 500)):
        assert totals[what] >= least, f"the traffic no longer exercises this: {totals}"


@pytest.mark.parametrize("bundle", ["demo_bundle", "demo_bundle_int8"])
def test_the_real_model_gives_every_request_its_own_tokens(
    bundle: str, request: pytest.FixtureRequest, repetitions: int
) -> None:
    pair = pair_of(request.getfixturevalue(bundle), longest_output=40)
    totals = compare(pair, repetitions * REAL_TOKENS, first_seed=1000)
    for what, least in (("hit", 50), ("accepted", 30), ("rejected", 100)):
        assert totals[what] >= least, f"the traffic no longer exercises this: {totals}"
