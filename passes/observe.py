"""What a graph answers in a scenario: the attention's result of each layer, and the logits, by sequence and position.

A model and a scenario flow in; `Observations` flow out, a file a layer, so that two graphs are compared with one layer
in memory at a time. The same names come from a graph before it is paged and after it. Watching every value was the
alternative and lost: passes rename, merge and drop values; an attention node a layer is what all graphs have.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ..plugins import contract
from ..plugins.contract import GraphFacts
from ..plugins.paged_attention.schema import ATTENTION, PAGED_ATTENTION
from .compare_graphs import run_session
from .scenario import Scenario
from .weight_files import WeightFiles

__all__ = ["Observations", "observe"]

Floats = npt.NDArray[np.float32]
Row = tuple[int, int]  # sequence, position
Inputs = Mapping[str, np.ndarray]
CACHE_TYPES = {
    "float32": np.float32,
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
    "float8e4m3fn": ml_dtypes.float8_e4m3fn,
}
SEED = 11


@dataclass(frozen=True)
class Observations:
    """`rows[name]` says which rows were seen of layer.0, layer.1 ..., logits; their numbers lie in `folder`."""

    folder: Path
    rows: Mapping[str, tuple[Row, ...]]

    def values(self, name: str) -> Floats:
        """[rows, width] of one layer, or of the logits; read now."""
        return np.load(self.folder / f"{name}.npy")  # type: ignore[no-any-return]


def observe(model: ir.Model, facts: GraphFacts, scenario: Scenario, files: WeightFiles, folder: Path) -> Observations:
    """Run `scenario` through `model`, which stays as it is, on stock onnxruntime; what was seen goes to `folder`."""
    watched, outputs = _with_outputs(model)
    session = files.open_session(watched)
    inputs = {value.name for value in watched.graph.inputs}
    chooses = contract.LOGIT_ROWS in inputs
    feed = (
        PagedFeed(_as_stored(facts, watched.graph), scenario) if contract.PAGE_TABLE in inputs else WholeFeed(scenario)
    )
    seen: dict[str, list[tuple[Row, Floats]]] = {name: [] for name in outputs.values()}
    for step in feed.steps():
        wanted = [*outputs, *feed.carried]
        found = run_session(session, feed.inputs(step), wanted)
        feed.take_back(found)
        for output, name in outputs.items():
            array = np.asarray(found[output], np.float32)
            rows = step.wanted_rows if name == contract.LOGITS and chooses else step.rows
            array = array.reshape(len(rows), -1)
            seen[name] += [
                (row, values.copy())
                for row, values in zip(rows, array, strict=True)
                if row is not None and (name != contract.LOGITS or scenario.keeps_logits(*row))
            ]
    return _written(seen, folder)


def _as_stored(facts: GraphFacts, graph: ir.Graph) -> GraphFacts:
    """`facts` with the cache that `graph` has now: a pass may yet make it smaller."""
    pools = (value.dtype for value in graph.inputs if contract.is_kv_pages(str(value.name)))
    dtype = next((dtype for dtype in pools if dtype is not None), None)
    names = {"FLOAT": "float32"}
    return facts if dtype is None else replace(facts, cache_dtype=names.get(dtype.name, dtype.name.lower()))


@dataclass(frozen=True)
class Step:
    """The rows of one run, None where a token is a wrong guess; `wanted` are the rows whose logits are asked for."""

    rows: tuple[Row | None, ...]
    wanted: tuple[int, ...]
    lengths: Mapping[int, tuple[int, int]]  # by sequence: tokens before this step, tokens in it

    @property
    def wanted_rows(self) -> tuple[Row | None, ...]:
        """The rows that logits are given for."""
        return tuple(self.rows[place] for place in self.wanted)


class WholeFeed:
    """Each sequence alone and whole, for graphs whose rows are one sequence."""

    carried: tuple[str, ...] = ()

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._rng = np.random.default_rng(SEED)

    def steps(self) -> Iterator[Step]:
        """One a sequence."""
        for number, ids in enumerate(self._scenario.sequences):
            rows = tuple((number, position) for position in range(len(ids)))
            yield Step(rows, _some_rows(self._rng, len(rows)), {number: (0, len(ids))})

    def inputs(self, step: Step) -> Inputs:
        """What such a graph may ask for."""
        ((number, (_, count)),) = step.lengths.items()
        return {
            contract.INPUT_IDS: np.asarray(self._scenario.sequences[number], np.int64),
            contract.POSITIONS: np.arange(count, dtype=np.int64),
            contract.LOGIT_ROWS: np.asarray(step.wanted, np.int64),
        }

    def take_back(self, found: Inputs) -> None:
        """Nothing is carried from one sequence to the next."""


class PagedFeed:
    """The scenario's steps, with pools that go from step to step; pages are shuffled and full of noise at first."""

    def __init__(self, facts: GraphFacts, scenario: Scenario) -> None:
        rng = self._rng = np.random.default_rng(SEED)
        self._scenario = scenario
        longest = max(map(len, scenario.sequences)) + max(turn.wrong for step in scenario.steps for turn in step)
        max_pages = -(-longest // facts.page_size)
        count = max_pages * len(scenario.sequences)
        self._table = rng.permutation(count).reshape(-1, max_pages).astype(np.int32)
        layers = range(len(facts.layers))
        dtype = CACHE_TYPES[facts.cache_dtype]
        self._pools: dict[str, np.ndarray] = {
            contract.kv_pages_in(i): rng.standard_normal(facts.pool_shape(i, count), np.float32).astype(dtype)
            for i in layers
        }
        self._names = {contract.kv_pages_out(i): contract.kv_pages_in(i) for i in layers}
        self.carried = tuple(self._names)

    def steps(self) -> Iterator[Step]:
        """As the scenario says."""
        computed = [0] * len(self._scenario.sequences)
        for turns in self._scenario.steps:
            rows: list[Row | None] = []
            lengths = {}
            for number, turn in enumerate(turns):
                if turn.kept:
                    rows += [(number, computed[number] + i) for i in range(turn.kept)] + [None] * turn.wrong
                    lengths[number] = (computed[number], turn.kept + turn.wrong)
                    computed[number] += turn.kept
            if rows:
                yield Step(tuple(rows), _some_rows(self._rng, len(rows)), lengths)

    def inputs(self, step: Step) -> Inputs:
        """Everything that the contract has."""
        positions = [start + i for start, count in step.lengths.values() for i in range(count)]
        numbers = [number for number, (_, count) in step.lengths.items() for _ in range(count)]
        ids = [
            self._scenario.sequences[number][position] if row else self._scenario.wrong_token(number, position)
            for row, number, position in zip(step.rows, numbers, positions, strict=True)
        ]
        counts = [count for _, count in step.lengths.values()]
        return {
            contract.INPUT_IDS: np.asarray(ids, np.int64),
            contract.POSITIONS: np.asarray(positions, np.int64),
            contract.QUERY_START: np.cumsum([0, *counts], dtype=np.int32),
            contract.CONTEXT_LEN: np.asarray([sum(one) for one in step.lengths.values()], np.int32),
            contract.PAGE_TABLE: self._table[list(step.lengths)],
            contract.LOGIT_ROWS: np.asarray(step.wanted, np.int64),
            **self._pools,
        }

    def take_back(self, found: Inputs) -> None:
        """The pools as this step left them."""
        for output, name in self._names.items():
            if output in found:
                self._pools[name] = found[output]


def _some_rows(rng: np.random.Generator, count: int) -> tuple[int, ...]:
    """Two thirds of the rows, ascending, at least one: a graph that takes all of them, or others, is found out."""
    return tuple(sorted(map(int, rng.permutation(count)[: max(1, 2 * count // 3)])))


def _with_outputs(model: ir.Model) -> tuple[ir.Model, dict[str, str]]:
    """A clone that also gives each layer's attention, and our name for each output that is looked at."""
    watched = model.clone()
    outputs = {contract.LOGITS: contract.LOGITS}
    for node in watched.graph:
        if node.domain == contract.DOMAIN and node.op_type in (ATTENTION, PAGED_ATTENTION):
            value = node.outputs[0]
            outputs[str(value.name)] = f"layer.{node.attributes.get_int('layer', 0)}"
            if not value.is_graph_output():
                watched.graph.outputs.append(value)
    return watched, outputs


def _written(seen: Mapping[str, list[tuple[Row, Floats]]], folder: Path) -> Observations:
    """The rows of each name in order, in a file."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = {}
    for name, found in seen.items():
        found.sort(key=lambda one: one[0])
        rows[name] = tuple(row for row, _ in found)
        np.save(folder / f"{name}.npy", np.stack([values for _, values in found]))
    return Observations(folder, rows)
