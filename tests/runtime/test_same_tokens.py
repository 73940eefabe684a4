"""Same tokens, always: whatever else happens, a request gets what it gets alone.

The traffic is random but reproducible: a failure names its seed, `make_scenario(seed)` brings it back. A long run is
`PACELINE_SCENARIOS=5000 pytest tests/runtime/test_same_tokens.py`.
"""

import os
from collections import Counter

import pytest
from toy_scenario import make_scenario, run_scenario

NUM_SCENARIOS = int(os.environ.get("PACELINE_SCENARIOS", "240"))
MIN_TOKENS = 20_000  # what one CI run must compare

pytestmark = pytest.mark.filterwarnings("error")


def test_scenarios_produce_the_tokens_of_a_request_alone():
    totals: Counter[str] = Counter()
    for seed in range(NUM_SCENARIOS):
        outcome = run_scenario(make_scenario(seed))
        assert not outcome.wrong, f"scenario {seed}: {outcome.wrong[0]}"
        counters = outcome.loop.counters
        totals["tokens"] += outcome.num_tokens
        totals["cancelled"] += outcome.num_cancelled
        totals["preempted"] += counters.preemptions
        totals["hit"] += counters.prefix_hit_tokens
        totals["accepted"] += counters.accepted_tokens
        totals["rejected"] += counters.draft_tokens - counters.accepted_tokens
    assert totals["tokens"] >= MIN_TOKENS
    for what, least in (("cancelled", 50), ("preempted", 100), ("hit", 2000), ("accepted", 3000), ("rejected", 3000)):
        assert totals[what] >= least, f"the traffic no longer exercises this: {what} {totals[what]}"
