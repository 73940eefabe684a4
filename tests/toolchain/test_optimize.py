"""optimize and lower: the order is data, every pass reports, and a second run finds nothing to do."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from exports import export_of
from ragged import run_ragged
from tiny_models import VOCAB_SIZE, RandomCheckpoint

from paceline.passes import pipeline
from paceline.passes.base import PassReport, run_passes
from paceline.passes.errors import PassError
from paceline.passes.target import Target
from paceline.toolchain.export import ExportedModel
from paceline.toolchain.optimize import lower, optimize, set_precision

ALL_PASSES = {
    "tidy": pipeline.TIDY,
    "portable": pipeline.PORTABLE,
    "precision": pipeline.PRECISION,
    "cpu": pipeline.CPU,
}
# allowed root mean square of the difference over that of the logits, by cache: sums in another order; keys and values
# rounded to 8 bits (2^-9 each, measured 0.4 %)
# bfloat16: weights, rows of x, keys, values, queries and the weights of the softmax are rounded to 2^-9 of themselves.
ALLOWED_RMS = [("float32", 2e-5), ("bfloat16", 0.02)]


@dataclass(frozen=True)
class Optimized:
    """One tiny model behind the portable passes, and what was seen on the way."""

    checkpoint: RandomCheckpoint
    exported: ExportedModel
    target: Target
    reports: tuple[PassReport, ...]
    seen: tuple[tuple[str, int], ...]


@pytest.fixture
def optimized(request: pytest.FixtureRequest) -> Optimized:
    target = Target(weights="fp32", cache_dtype=getattr(request, "param", "float32"), page_size=4)
    checkpoint, exported = export_of("llama3_tied")
    exported = replace(exported, facts=replace(exported.facts, cache_dtype=target.cache_dtype))
    seen: list[tuple[str, int]] = []
    reports = optimize(exported.model, target, lambda report, model: seen.append((report.name, len(model.graph))))
    return Optimized(checkpoint, exported, target, reports, tuple(seen))


def test_passes_run_in_the_order_of_the_table(optimized: Optimized) -> None:
    names = [one_pass.__name__ for one_pass in pipeline.PORTABLE]
    assert [report.name for report in optimized.reports] == names
    assert [name for name, _ in optimized.seen] == names
    assert optimized.seen[-1][1] < optimized.seen[0][1] / 3, "most of an exported graph is in the way"


def test_the_portable_passes_have_nothing_to_do_twice(optimized: Optimized) -> None:
    again = run_passes(optimized.exported.model, optimized.target, (*pipeline.TIDY, *pipeline.PORTABLE))
    assert {report.name: report.count for report in again if report.count} == {}


@pytest.mark.parametrize("passes", ALL_PASSES.values(), ids=list(ALL_PASSES))
def test_a_pass_is_called_as_its_file_is(passes: tuple[object, ...]) -> None:
    for one_pass in passes:
        stem = one_pass.__module__.rpartition(".")[2]
        assert stem in (one_pass.__name__, "tidy"), f"{one_pass.__name__} is in {stem}"  # type: ignore[attr-defined]


@pytest.mark.parametrize(("optimized", "allowed"), ALLOWED_RMS, indirect=["optimized"])
def test_a_lowered_graph_answers_as_transformers_does(optimized: Optimized, allowed: float) -> None:
    exported = optimized.exported
    reports = set_precision(exported.model, optimized.target) + lower(exported.model, optimized.target)
    wanted_names = [one_pass.__name__ for one_pass in (*pipeline.PRECISION, *pipeline.CPU)]
    assert [report.name for report in reports] == wanted_names
    assert not any(node.op_type == "MatMul" for node in exported.model.graph)
    requests = [np.random.default_rng(n).integers(0, VOCAB_SIZE, n) for n in (28, 9, 22)]
    wanted = [optimized.checkpoint.logits(request) for request in requests]
    for rows, logits in run_ragged(exported.model, exported.facts, requests):
        expected = np.stack([wanted[request][position] for request, position in rows])
        error = np.sqrt(np.mean((logits - expected) ** 2) / np.mean(expected**2))
        assert error < allowed, rows


def test_an_error_names_the_pass_that_could_not_go_on() -> None:
    model = export_of("llama3_tied")[1].model
    model.graph.outputs[0].name = "scores"
    with pytest.raises(PassError, match=r"select_logit_rows failed .* no output is called logits .*before it: .*qkv"):
        optimize(model, Target())
