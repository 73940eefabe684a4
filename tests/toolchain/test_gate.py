"""The gate: which limits hold, how few layers are raised, and what a failure says."""

import math
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.passes.target import Target
from paceline.toolchain.errors import GateError
from paceline.toolchain.evaluate import Accuracy
from paceline.toolchain.gate import GateResult, check_result, faults, pass_gate
from paceline.toolchain.rank_layers import Sensitivity
from paceline.toolchain.recipe_parts import AccuracyGate


def accuracy(kl: float = 0.01, top1: float = 0.97, perplexity: float = 10.1) -> Accuracy:
    return Accuracy(100, perplexity, 10.0, kl, top1)


def ranking_of(count: int) -> list[Sensitivity]:
    return [Sensitivity(f"layers.{i}", "int8", "bf16", 1.0 / (i + 1), 1000) for i in range(count)]


def run_gate(num_layers: int, needed: int, on_failure: str = "raise_layers") -> tuple[GateResult, list[int]]:
    """A model that is good enough with `needed` layers raised; also how many were raised in each try."""
    raised: list[int] = []

    def write(target: Target) -> None:
        raised.append(len(target.keep))

    def measure() -> Mapping[str, Accuracy]:
        return {"engine": accuracy(kl=0.01 if raised[-1] >= needed else 0.5)}

    limits = AccuracyGate(max_kl=0.05, on_failure=on_failure)  # type: ignore[arg-type]
    return pass_gate(Target(weights="int8"), limits, write, measure, lambda: ranking_of(num_layers)), raised


@pytest.mark.parametrize(
    ("limits", "measured", "message"),
    [
        ({"max_kl": 0.005}, accuracy(), "engine: KL 0.01, at most 0.005"),
        ({"min_top1": 0.98}, accuracy(), "engine: top-1 0.97, at least 0.98"),
        ({"max_ppl_increase": 0.005}, accuracy(), "engine: perplexity increase 0.01, at most 0.005"),
        ({"max_kl": 0.005}, accuracy(kl=math.nan), "engine: KL nan, at most 0.005"),
        ({"min_top1": 0.5}, accuracy(top1=math.nan), "engine: top-1 nan, at least 0.5"),
    ],
)
def test_a_limit_that_does_not_hold_is_said_with_its_figures(
    limits: dict[str, float], measured: Accuracy, message: str
) -> None:
    assert faults({"engine": measured}, AccuracyGate(**limits)) == [message]  # type: ignore[arg-type]


def test_every_artefact_must_hold() -> None:
    limits = AccuracyGate(max_kl=0.05)
    assert faults({"portable": accuracy(), "engine": accuracy()}, limits) == []
    assert len(faults({"portable": accuracy(), "engine": accuracy(kl=1)}, limits)) == 1


@given(st.integers(1, 130), st.data())
@settings(max_examples=80, deadline=None)
def test_the_fewest_layers_are_raised_and_written_last(num_layers: int, data: st.DataObject) -> None:
    needed = data.draw(st.integers(0, num_layers))
    result, raised = run_gate(num_layers, needed)
    assert len(result.raised) == needed == raised[-1] == len(result.target.keep)
    assert [one.module for one in result.raised] == [f"layers.{i}" for i in range(needed)]
    assert len(raised) <= 2 * math.ceil(math.log2(num_layers + 1)) + 3, "a try is a whole build"
    assert result.as_dict()["passed"] is True
    check_result(result)


def test_what_cannot_be_mended_fails_with_all_layers_raised() -> None:
    result, raised = run_gate(5, needed=99)
    assert raised[-1] == 5
    with pytest.raises(GateError, match=r"with 5 layers raised to 16 bits: engine: KL 0\.5, at most 0\.05"):
        check_result(result)


def test_stop_raises_nothing() -> None:
    result, raised = run_gate(5, needed=1, on_failure="stop")
    assert raised == [0]
    with pytest.raises(GateError, match=r"with no layer raised.*gates\.accuracy\.on_failure: raise_layers"):
        check_result(result)


def test_raised_layers_come_before_the_recipes_own_patterns() -> None:
    target = Target(weights="int8", keep=(("layers.*", "fp8"),))
    written: list[Target] = []
    pass_gate(
        target,
        AccuracyGate(max_kl=0.001, on_failure="raise_layers"),
        written.append,
        lambda: {"engine": accuracy()},
        lambda: ranking_of(1),
    )
    assert written[-1].format_of("layers.0", is_head=False) == "bf16"
