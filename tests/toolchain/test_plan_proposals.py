"""plan_proposals: what is proposed fits by the same forecast, gives up no more than it must, and can be typed."""

import random
import shlex

import pytest
from model_shapes import model_shape, recipe_of

from paceline.toolchain.errors import RecipeError
from paceline.toolchain.overrides import KEYS
from paceline.toolchain.plan_proposals import Loss, propose
from paceline.toolchain.recipe import Recipe, with_overrides
from paceline.toolchain.run_memory import RunForecast, forecast_run

MIB = 1 << 20
SHAPES = {"target": model_shape(40), "draft": model_shape(10)}


def forecast(recipe: Recipe) -> RunForecast:
    return forecast_run(recipe, SHAPES, 1000)


def recipe(**runtime: object) -> Recipe:
    return recipe_of(
        quantization={"weights": "fp32"},
        kv_cache={"dtype": "fp32"},
        draft={"checkpoint": "target", "layers": "0-9"},
        speculation={"method": "auto", "num_speculative_tokens": 4},
        runtime={"max_seq_len": 512, "kv_cache_memory": "64MiB", **runtime},
    )


def overrides_in(flags: tuple[str, ...]) -> dict[str, str]:
    """The flags as the command line would read them."""
    words = [shlex.split(flag) for flag in flags]
    return {KEYS[flag.removeprefix("--").replace("-", "_")]: value for flag, value in words}


def test_all_that_is_proposed_fits_and_can_be_typed() -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    draw, given = random.Random(seed), recipe()
    full = forecast(given).total_bytes
    for _ in range(10):
        memory = draw.randrange(full - 70 * MIB, full)
        proposals = propose(given, memory, forecast)
        assert proposals
        for one in proposals:
            changed = with_overrides(given, one.overrides)
            assert forecast(changed) == one.run
            assert one.run.total_bytes <= memory
            assert one.run.num_requests(changed.runtime.max_seq_len or 0) >= 1
            typed = with_overrides(given, {key: str(value) for key, value in one.overrides.items()})
            assert overrides_in(one.flags) == {key: str(value) for key, value in one.overrides.items()}
            assert typed == changed


def test_least_loss_comes_first_and_nothing_is_given_up_for_nothing() -> None:
    given = recipe()
    memory = forecast(given).total_bytes - 3 * MIB
    proposals = propose(given, memory, forecast)
    assert [one.loss for one in proposals] == sorted(one.loss for one in proposals)
    assert proposals[0].loss is Loss.CAPACITY
    assert list(proposals[0].overrides) == ["runtime.kv_cache_memory"]
    sets = [set(one.overrides) for one in proposals]
    assert not any(one < other for one in sets for other in sets)


def test_the_cache_is_the_largest_that_fits() -> None:
    given = recipe()
    memory = forecast(given).total_bytes - 3 * MIB
    best = propose(given, memory, forecast)[0]
    more = with_overrides(
        given, {"runtime.kv_cache_memory": f"{int(best.overrides[KEYS['kv_cache_memory']][:-3]) + 1}MiB"}
    )
    assert forecast(more).total_bytes > memory


def test_length_and_precision_are_given_up_together_where_one_is_not_enough() -> None:
    """A cache of one longest request is all there is, and still too large."""
    given = recipe(kv_cache_memory="11MiB", max_num_seqs=1, max_num_batched_tokens=64)
    run = forecast(given)
    assert run.num_requests(512) == 1
    proposals = propose(given, run.total_bytes - 9 * MIB, forecast)
    assert all(one.run.num_requests(one.run.longest_tokens) >= 1 for one in proposals)
    assert any(len(one.overrides) > 1 for one in proposals)


def test_what_can_never_fit_is_said_with_the_least_that_would() -> None:
    with pytest.raises(RecipeError) as caught:
        propose(recipe(), 10 * MIB, forecast)
    assert caught.value.found == "10 MiB of memory"
    assert "at least" in caught.value.needed
    assert "--weights int8_rows16" in caught.value.needed
    least = int(caught.value.needed.split()[2])
    assert propose(recipe(), (least + 1) * MIB, forecast), "what the message says is enough"


def test_a_recipe_that_has_no_room_for_a_longest_request_is_not_asked_for_more() -> None:
    given = recipe(kv_cache_memory="2MiB")
    run = forecast(given)
    assert run.num_requests(512) == 0
    proposals = propose(given, run.total_bytes - MIB // 2, forecast)
    assert any("runtime.max_seq_len" not in one.overrides for one in proposals)


def test_a_cache_that_is_rounded_down_still_holds_a_longest_request() -> None:
    """In whole MiB, the room for one longest request and a byte is room for none."""
    shapes, given = {"target": model_shape(300), "draft": model_shape(10)}, recipe()

    def forecast(recipe: Recipe) -> RunForecast:
        return forecast_run(recipe, shapes, 1000)

    run = forecast(given)
    longest = run.pages_of_longest * run.bytes_a_page
    assert longest > 32 * MIB
    assert longest % MIB
    proposals = propose(given, run.total_bytes - run.cache_bytes + longest + 1, forecast)
    assert all(one.run.num_requests(one.run.longest_tokens) >= 1 for one in proposals)
