"""What a pass is, and the one function that runs passes: count, reasons, check, blame.

A graph and a tuple of passes flow in; the edited graph and one `PassReport` a pass flow out. A pass is a plain function
`(model, target) -> int`. A fusion is such a function too, written as pattern / check / rewrite and handed to
`run_fusion`. Reasons why a pattern did not fire travel in the model's own in-memory metadata (never serialised), so
that neither a global list nor a second result type is needed; a class per pass was the alternative and lost.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import onnx_ir as ir

from .check_graph import check_graph, types_of
from .errors import PassError
from .target import Target

__all__ = [
    "Fusion",
    "Observer",
    "Pass",
    "PassReport",
    "explain",
    "remove_dead_nodes",
    "run_fusion",
    "run_passes",
]

Pass = Callable[[ir.Model, Target], int]

REASONS_KEY = "paceline.reasons"  # in ir.Model.meta: list[str], owned by explain() and run_passes()

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PassReport:
    """What one pass did: `count` rewrites in `seconds`; `reasons` say why patterns that were near did not fire."""

    name: str
    count: int
    seconds: float
    reasons: tuple[str, ...]


Observer = Callable[[PassReport, ir.Model], None]

Found = TypeVar("Found")
Plan = TypeVar("Plan")


@dataclass(frozen=True)
class Fusion(Generic[Found, Plan]):
    """One fusion in three parts, called in this order for every node.

    `pattern(node)` answers with what it found around `node`, or None where the node is no candidate at all.
    `check(found, target)` answers with the plan of the rewrite, or with the reason (a str that names the value at
    fault) why a candidate must stay as it is. `rewrite(graph, plan)` edits the graph; it puts new nodes before the
    first user of their outputs and leaves the old nodes unused: they are removed for it.
    """

    pattern: Callable[[ir.Node], Found | None]
    check: Callable[[Found, Target], Plan | str]
    rewrite: Callable[[ir.Graph, Plan], None]


def run_fusion(model: ir.Model, target: Target, fusion: Fusion[Found, Plan]) -> int:
    """Apply `fusion` at every node of the main graph, in order; returns the number of rewrites.

    Nodes that a rewrite has made are not visited again in the same run.
    """
    graph = model.graph
    count = 0
    for node in tuple(graph):
        if node.graph is not graph:  # removed by an earlier rewrite
            continue
        found = fusion.pattern(node)
        if found is None:
            continue
        plan = fusion.check(found, target)
        if isinstance(plan, str):
            explain(model, node.outputs[0], plan)
            continue
        fusion.rewrite(graph, plan)
        remove_dead_nodes(model)
        count += 1
    return count


def explain(model: ir.Model, place: ir.Value, reason: str) -> None:
    """Record why a pattern did not fire at `place`; `run_passes` moves it into the pass's report."""
    model.meta.setdefault(REASONS_KEY, []).append(f"{place.name}: {reason}")


def remove_dead_nodes(model: ir.Model) -> int:
    """Remove nodes and initializers that no graph output needs; returns how many. Inputs and outputs stay."""
    graph = model.graph
    count = 0
    for node in reversed(graph):
        if not any(output.uses() or output.is_graph_output() for output in node.outputs):
            graph.remove(node, safe=True)
            count += 1
    for name, value in tuple(graph.initializers.items()):
        if not (value.uses() or value.is_graph_output() or value.is_graph_input()):
            del graph.initializers[name]
            count += 1
    return count


def ignore(report: PassReport, model: ir.Model) -> None:
    """The observer that observes nothing."""


def run_passes(
    model: ir.Model, target: Target, passes: Sequence[Pass], observer: Observer = ignore
) -> tuple[PassReport, ...]:
    """Run `passes` in order on `model`, in place; returns one report a pass.

    `observer(report, model)` is called after each pass that has left a sound graph.
    Raises: PassError naming the pass, and those that ran before it, if it fails or leaves a graph that does not check.
    """
    reports: list[PassReport] = []
    for one_pass in passes:
        name = getattr(one_pass, "__name__", repr(one_pass))
        try:
            report = _run_one(name, one_pass, model, target)
        except Exception as error:
            before = ", ".join(report.name for report in reports) or "none"
            raise PassError(
                f"pass {name} failed on {model.graph.name or 'the graph'}: {type(error).__name__}: {error} "
                f"(passes before it: {before})",
                needed="a rewrite that leaves a sound graph",
                do=f"leave {name} out and report the graph, or mend the pass",
            ) from error
        reports.append(report)
        observer(report, model)
    return tuple(reports)


def _run_one(name: str, one_pass: Pass, model: ir.Model, target: Target) -> PassReport:
    model.meta.pop(REASONS_KEY, None)
    before = types_of(model)
    start = time.perf_counter()
    count = one_pass(model, target)
    seconds = time.perf_counter() - start
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"a pass returns the number of its rewrites, not {count!r}")
    check_graph(model, before)
    reasons = tuple(model.meta.pop(REASONS_KEY, ()))
    logger.info("%s: %d rewrites, %d left alone, %.2f s", name, count, len(reasons), seconds)
    return PassReport(name, count, seconds, reasons)
