"""The stages between export and build: make the graph good for any target, give it its precision, lower it to this one.

A model and a target flow in; the same model, edited in place, and a report for each pass flow out. The float32 graph
after the first stage is what calibration runs and accuracy is measured against; the portable graph after the second is
what the bundle carries beside the engines.
"""

from collections.abc import Collection, Sequence
from difflib import get_close_matches

import onnx_ir as ir

from ..passes import pipeline
from ..passes.base import Observer, Pass, PassReport, ignore, run_passes
from ..passes.target import Target
from .errors import RecipeError

__all__ = ["check_switched_off", "lower", "optimize", "set_precision"]

# Without these there is no graph under the contract, or nothing that an engine can load: they cannot be switched off.
ESSENTIAL = ("insert_paged_attention", "lower_to_cpu", "name_bindings", "select_logit_rows")


def check_switched_off(names: Collection[str]) -> None:
    """Raise `RecipeError` for a name that is no pass, or a pass that cannot be left out."""
    known = sorted({one.__name__ for one in (*pipeline.PORTABLE, *pipeline.PRECISION, *pipeline.CPU)})
    for name in names:
        if name not in known:
            nearest = get_close_matches(name, known, n=1, cutoff=0.0)[0]
            raise RecipeError(f"passes: {name}", needed=f"one of {', '.join(known)}", do=f"did you mean '{nearest}'?")
        if name in ESSENTIAL:
            raise RecipeError(f"passes: {name} is switched off", needed="it, in every graph", do="leave it enabled")


def optimize(
    model: ir.Model, target: Target, observer: Observer = ignore, switched_off: Collection[str] = ()
) -> tuple[PassReport, ...]:
    """Run the portable passes but those named in `switched_off`. Edits `model` in place.

    Raises: PassError naming the pass that failed or left an unsound graph.
    """
    return run_passes(model, target, _without(pipeline.PORTABLE, switched_off), observer)


def set_precision(
    model: ir.Model, target: Target, observer: Observer = ignore, switched_off: Collection[str] = ()
) -> tuple[PassReport, ...]:
    """Run the passes that give each layer its number format. Edits an optimized `model` in place.

    Raises: PassError as `optimize`.
    """
    return run_passes(model, target, _without(pipeline.PRECISION, switched_off), observer)


def lower(
    model: ir.Model, target: Target, observer: Observer = ignore, switched_off: Collection[str] = ()
) -> tuple[PassReport, ...]:
    """Run the passes of the target's own: its ops over packed weights. Edits a `model` with its precision set in place.

    Raises: PassError as `optimize`.
    """
    return run_passes(model, target, _without(pipeline.CPU, switched_off), observer)


def _without(passes: Sequence[Pass], switched_off: Collection[str]) -> tuple[Pass, ...]:
    return tuple(one for one in passes if one.__name__ not in switched_off)
