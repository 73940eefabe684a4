"""The accuracy gate: is what is about to ship good enough, and if not, which layers make it so?

A way to write the graphs for a target and a way to measure them flow in; figures and the target that was written last
flow out, or a `GateError` with the figures. Layers are raised worst first: one, two, four ... until the gate holds,
then halving back to the fewest that do.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from ..passes.target import Target
from .errors import GateError
from .evaluate import Accuracy
from .rank_layers import Sensitivity
from .recipe_parts import AccuracyGate

__all__ = ["GateResult", "check_result", "faults", "pass_gate"]

Measured = Mapping[str, Accuracy]  # by what was measured: "portable", "engine"
Write = Callable[[Target], None]
Measure = Callable[[], Measured]


@dataclass(frozen=True)
class GateResult:
    """`tries` maps the number of raised layers to what was measured then; the last that was written is `target`'s."""

    target: Target
    limits: AccuracyGate
    measured: Measured
    raised: tuple[Sensitivity, ...]
    ranking: tuple[Sensitivity, ...]
    tries: Mapping[int, Measured]

    def summary(self) -> str:
        """One line for a person: the engine's figures, and what was raised."""
        name, accuracy = list(self.measured.items())[-1]
        added = sum(one.added_bytes for one in self.raised) / 2**20
        raised = f"; {len(self.raised)} layers raised to 16 bits, {added:.1f} MiB more" if self.raised else ""
        return (
            f"accuracy of the {name} on {accuracy.tokens} tokens: KL {accuracy.kl:.5f}, top-1 {accuracy.top1:.2%}, "
            f"perplexity {accuracy.ppl_increase:+.2%} of float32{raised}"
        )

    def as_dict(self) -> dict[str, object]:
        """For reports/accuracy.json."""
        return {
            "passed": not faults(self.measured, self.limits),
            "limits": {name: getattr(self.limits, name) for name in ("max_kl", "min_top1", "max_ppl_increase")},
            "measured": {name: accuracy.as_dict() for name, accuracy in self.measured.items()},
            "raised": [asdict(one) for one in self.raised],
            "raised_bytes": sum(one.added_bytes for one in self.raised),
            "ranking": [asdict(one) for one in self.ranking],
            "tries": {
                str(count): {name: accuracy.as_dict() for name, accuracy in measured.items()}
                for count, measured in sorted(self.tries.items())
            },
        }


def faults(measured: Measured, limits: AccuracyGate) -> list[str]:
    """Every limit that does not hold, with its figures; a figure that is no number holds nothing."""
    found = []
    for name, accuracy in measured.items():
        checks = (
            ("KL", accuracy.kl, limits.max_kl, accuracy.kl <= (limits.max_kl or 0.0), "at most"),
            ("top-1", accuracy.top1, limits.min_top1, accuracy.top1 >= (limits.min_top1 or 0.0), "at least"),
            (
                "perplexity increase",
                accuracy.ppl_increase,
                limits.max_ppl_increase,
                accuracy.ppl_increase <= (limits.max_ppl_increase or 0.0),
                "at most",
            ),
        )
        found += [
            f"{name}: {what} {value:.5g}, {sense} {limit:.5g}"
            for what, value, limit, holds, sense in checks
            if limit is not None and not holds
        ]
    return found


def pass_gate(
    target: Target, limits: AccuracyGate, write: Write, measure: Measure, rank: Callable[[], Sequence[Sensitivity]]
) -> GateResult:
    """Write and measure until the gate holds, or nothing is left to raise; the graphs are written as `target` says."""
    trials = Trials(target, limits, write, measure)
    count = 0
    if not trials.holds(0) and limits.on_failure == "raise_layers":
        trials.ranking = tuple(rank())
        count = _fewest(trials.holds, len(trials.ranking))
    if trials.written != count:
        trials.holds(count)
    raised = trials.ranking[:count]
    return GateResult(_raised(target, raised), limits, trials.tries[count], raised, trials.ranking, trials.tries)


class Trials:
    """Writes and measures the target with some layers raised, and remembers what came out."""

    def __init__(self, target: Target, limits: AccuracyGate, write: Write, measure: Measure) -> None:
        self._target, self._limits, self._write, self._measure = target, limits, write, measure
        self.ranking: tuple[Sensitivity, ...] = ()
        self.tries: dict[int, Measured] = {}
        self.written = -1

    def holds(self, count: int) -> bool:
        """Whether the gate holds with the `count` worst layers raised."""
        self._write(_raised(self._target, self.ranking[:count]))
        self.written = count
        self.tries[count] = self._measure()
        return not faults(self.tries[count], self._limits)


def _raised(target: Target, layers: Sequence[Sensitivity]) -> Target:
    """`target` with these layers kept higher, whatever the recipe says of them."""
    return replace(target, keep=(*((one.module, one.raised_to) for one in layers), *target.keep))


def _fewest(holds: Callable[[int], bool], most: int) -> int:
    """The fewest layers for which it holds, at most `most`; `most` where nothing does."""
    failed, best = 0, min(1, most)
    while best < most and not holds(best):
        failed, best = best, min(2 * best, most)
    while best - failed > 1:
        middle = (failed + best) // 2
        if holds(middle):
            best = middle
        else:
            failed = middle
    return best


def check_result(result: GateResult) -> None:
    """Raise `GateError` with every limit that does not hold."""
    found = faults(result.measured, result.limits)
    if not found:
        return
    tried = f"with {len(result.raised)} layers raised to 16 bits" if result.raised else "with no layer raised"
    do = "take a higher format, or keep layers higher with quantization.keep"
    if result.limits.on_failure == "stop":
        do += ", or set gates.accuracy.on_failure: raise_layers"
    raise GateError(f"accuracy {tried}: {'; '.join(found)}", needed="every limit of gates.accuracy", do=do)
