"""What to give up so that a bundle fits into so much memory: the smallest sets of changes, least loss first.

A recipe, a forecast of it as a function and a number of bytes flow in; proposals flow out, each as the flags that
`paceline build` takes. A lever is one thing that can be given up, in rungs from less to more. Every set of levers is
tried, smaller sets first, and a set that holds a set which fits already is left out: nothing is given up for nothing.
One ladder with everything on it was the alternative and lost: it sacrifices batch and length to somebody who would
rather have int8.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import combinations, product
from typing import Any

from .errors import RecipeError
from .overrides import flags_from
from .recipe import Recipe, with_overrides
from .run_memory import RunForecast
from .weight_formats import SMALLER_ON_CPU, engine_bits

__all__ = ["Loss", "Proposal", "propose"]

SHORTEST_LEN = 256  # tokens; below that a prompt hardly fits
FEWEST_TOKENS = 64  # in a step; below that prefill crawls
MAX_PROPOSALS = 6
UNITS = (("MiB", 1 << 20), ("KiB", 1 << 10))
FEWEST_UNITS = 32  # of the unit that a cache is given in, so that rounding down costs 3 % at most

Overrides = Mapping[str, Any]
Forecast = Callable[[Recipe], RunForecast]


class Loss(IntEnum):
    """What a change costs its user, from nothing that shows in an answer to what shows in all of them."""

    CAPACITY = 1  # fewer requests at once
    SPEED = 2  # fewer tokens guessed ahead
    ROUNDING = 3  # 16 bits
    LENGTH = 4  # long requests are refused
    ACCURACY = 5  # 8 bits and less


@dataclass(frozen=True)
class Rung:
    """One step of a lever."""

    overrides: Overrides
    loss: Loss


@dataclass(frozen=True)
class Proposal:
    """Changes that fit: as keys of the recipe, and as flags; `run` is the forecast with them."""

    overrides: Overrides
    flags: tuple[str, ...]
    loss: Loss
    run: RunForecast


def propose(recipe: Recipe, memory_bytes: int, forecast: Forecast) -> tuple[Proposal, ...]:
    """The smallest sets of changes with which `forecast(recipe)` is at most `memory_bytes`, least loss first.

    Raises: RecipeError when nothing that can be given up is enough.
    """
    levers = {name: rungs for name, make in LEVERS.items() if (rungs := tuple(make(recipe)))}
    found: dict[frozenset[str], Proposal] = {}
    for size in range(1, len(levers) + 2):
        for names in combinations((CACHE, *levers), size):
            if not any(one <= set(names) for one in found):
                proposal = _first_that_fits(recipe, names, levers, memory_bytes, forecast)
                if proposal is not None:
                    found[frozenset(names)] = proposal
    if not found:
        raise _too_small(recipe, levers, memory_bytes, forecast)
    ranked = sorted(found.values(), key=lambda one: (one.loss, len(one.overrides), -one.run.num_pages))
    return tuple(ranked[:MAX_PROPOSALS])


def _first_that_fits(
    recipe: Recipe,
    names: tuple[str, ...],
    levers: Mapping[str, tuple[Rung, ...]],
    memory_bytes: int,
    forecast: Forecast,
) -> Proposal | None:
    """The proposal with the lowest rungs of exactly these levers, or None."""
    before = forecast(recipe)
    for rungs in product(*(levers[name] for name in names if name != CACHE)):
        overrides = {key: value for rung in rungs for key, value in rung.overrides.items()}
        changed = with_overrides(recipe, overrides)
        if CACHE in names:
            cache = _largest_cache(recipe, forecast(changed), memory_bytes)
            if cache is None:
                continue
            overrides |= {CACHE: cache}
            changed = with_overrides(recipe, overrides)
        run = forecast(changed)
        if run.total_bytes <= memory_bytes and run.num_pages >= min(run.pages_of_longest, before.num_pages):
            loss = max((rung.loss for rung in rungs), default=Loss.CAPACITY)
            return Proposal(overrides, flags_from(overrides), loss, run)
    return None


def _largest_cache(recipe: Recipe, run: RunForecast, memory_bytes: int) -> str | None:
    """The largest cache below the recipe's that leaves room for the rest; None where a longest request would fail."""
    room = memory_bytes - (run.total_bytes - run.cache_bytes)
    if room < run.pages_of_longest * run.bytes_a_page or room >= run.cache_bytes:
        return None
    unit, size = next((one for one in UNITS if room >= FEWEST_UNITS * one[1]), UNITS[-1])
    return f"{room // size}{unit}"


def _too_small(
    recipe: Recipe, levers: Mapping[str, tuple[Rung, ...]], memory_bytes: int, forecast: Forecast
) -> RecipeError:
    """What the least would be."""
    last = {key: value for rungs in levers.values() for key, value in rungs[-1].overrides.items()}
    run = forecast(with_overrides(recipe, last))
    least = run.total_bytes - run.cache_bytes + min(run.cache_bytes, run.pages_of_longest * run.bytes_a_page)
    return RecipeError(
        f"{memory_bytes / 2**20:.0f} MiB of memory",
        needed=f"at least {least / 2**20:.0f} MiB, with {' '.join(flags_from(last)) or 'the recipe as it is'} "
        "and a cache of one request",
        do="choose a smaller model, or a machine with more memory",
    )


def _batches(recipe: Recipe) -> Iterator[Rung]:
    seqs, tokens = recipe.runtime.max_num_seqs, recipe.runtime.max_num_batched_tokens
    while seqs > 1 or tokens // 2 >= FEWEST_TOKENS:
        seqs = max(1, seqs // 2)
        tokens = max(seqs, tokens // 2) if tokens // 2 >= FEWEST_TOKENS else tokens
        yield Rung({"runtime.max_num_seqs": seqs, "runtime.max_num_batched_tokens": tokens}, Loss.CAPACITY)


def _guesses(recipe: Recipe) -> Iterator[Rung]:
    for count in range(recipe.speculation.num_speculative_tokens - 1, -1, -1):
        yield Rung({"speculation.num_speculative_tokens": count}, Loss.SPEED)


def _no_draft(recipe: Recipe) -> Iterator[Rung]:
    if recipe.opens_draft:
        yield Rung({"speculation.method": "ngram"}, Loss.SPEED)


def _cache_formats(recipe: Recipe) -> Iterator[Rung]:
    formats = tuple(CACHE_LOSSES)
    for name in formats[formats.index(recipe.kv_cache.dtype) + 1 :]:
        yield Rung({"kv_cache.dtype": name}, CACHE_LOSSES[name])


def _lengths(recipe: Recipe) -> Iterator[Rung]:
    length = (recipe.runtime.max_seq_len or 0) // 2
    while length >= SHORTEST_LEN:
        yield Rung({"runtime.max_seq_len": length}, Loss.LENGTH)
        length //= 2


def _weights(recipe: Recipe) -> Iterator[Rung]:
    for name in SMALLER_ON_CPU:
        if engine_bits(name) < engine_bits(recipe.quantization.weights):
            loss = Loss.ROUNDING if engine_bits(name) >= 16 else Loss.ACCURACY
            yield Rung({"quantization.weights": name}, loss)


CACHE_LOSSES = {"fp32": Loss.ROUNDING, "bf16": Loss.ROUNDING, "fp8": Loss.ACCURACY}  # by falling precision
CACHE = "runtime.kv_cache_memory"  # no rungs: the largest that fits is computed
LEVERS: Mapping[str, Callable[[Recipe], Iterator[Rung]]] = {
    "batch": _batches,
    "guesses": _guesses,
    "draft": _no_draft,
    "cache format": _cache_formats,
    "length": _lengths,
    "weights": _weights,
}
