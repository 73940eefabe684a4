"""The two stages between export and build: make the graph good for any target, then for this one.

A model and a target flow in; the same model, edited in place, and a report for each pass flow out. Between the two
stages the caller saves the portable graph: it is what the bundle carries beside the engines.
"""

import onnx_ir as ir

from ..passes import pipeline
from ..passes.base import Observer, PassReport, ignore, run_passes
from ..passes.target import Target

__all__ = ["lower", "optimize"]


def optimize(model: ir.Model, target: Target, observer: Observer = ignore) -> tuple[PassReport, ...]:
    """Run the portable passes: fusions, chosen logits, pages, names. Edits `model` in place.

    Raises: PassError naming the pass that failed or left an unsound graph.
    """
    return run_passes(model, target, pipeline.PORTABLE, observer)


def lower(model: ir.Model, target: Target, observer: Observer = ignore) -> tuple[PassReport, ...]:
    """Run the passes of the target's own: packed weights in its formats. Edits an optimized `model` in place.

    Raises: PassError as `optimize`.
    """
    return run_passes(model, target, pipeline.CPU, observer)
