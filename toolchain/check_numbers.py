"""Are a checkpoint's weights numbers that a model can be made of? Asked before anything is exported.

A checkpoint flows in, a few rows at a time; nothing flows out, or CheckpointError with the name of each bad tensor, how
many of its numbers are bad and where the first one is. Looking while the graph is written was the alternative and lost:
it comes after minutes of work, and a NaN has gone through quantisation by then. Rows of zeros are kept: they pad
vocabularies, and pruned models have them; a matrix of nothing else is a file that somebody did not finish writing.
"""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from .checkpoint import Checkpoint
from .errors import CheckpointError

__all__ = ["check_numbers"]

BLOCK = 1 << 16  # numbers looked at together: 256 kB stay in the cache (113 MB took 18 ms; whole, 25 ms)
ROWS_BYTES = 16 << 20  # of a tensor in memory at once, where the checkpoint can read a part of it
NAMED = 5  # faults in one message

Weights = npt.NDArray[np.float32]


def check_numbers(checkpoint: Checkpoint) -> None:
    """Read every tensor once, in parts, and refuse NaN, infinity, and matrices of zeros.

    Raises: CheckpointError naming the tensors.
    """
    faults = [fault for name in checkpoint.names() if (fault := _fault(checkpoint, name)) is not None]
    if faults:
        more = f"; and {len(faults) - NAMED} more tensors" if len(faults) > NAMED else ""
        raise CheckpointError(
            "; ".join(faults[:NAMED]) + more,
            needed="finite numbers in every tensor, and some that are not zero in every matrix",
            do="fetch the checkpoint again; if it was made that way, its training or conversion went wrong",
        )


def _fault(checkpoint: Checkpoint, name: str) -> str | None:
    """What is wrong with one tensor, or None. NaN and infinity show in the least and the greatest number."""
    least, greatest = np.float32(0), np.float32(0)
    shape = checkpoint.shape(name)
    for block in _blocks(checkpoint, name):
        least, greatest = np.minimum(least, block.min()), np.maximum(greatest, block.max())
        if not (np.isfinite(least) and np.isfinite(greatest)):
            return _not_finite(checkpoint, name)
    if len(shape) > 1 and math.prod(shape) > 0 and least == greatest == 0:
        return f"{name} {list(shape)} is all zeros"
    return None


def _not_finite(checkpoint: Checkpoint, name: str) -> str:
    """How many numbers are bad, and where the first one is: a second reading, of this tensor only."""
    count, offset, first, kind = 0, 0, 0, ""
    for block in _blocks(checkpoint, name):
        (places,) = np.nonzero(~np.isfinite(block))
        if not count and len(places):
            first, kind = offset + int(places[0]), "NaN" if np.isnan(block[places[0]]) else "infinite"
        count, offset = count + len(places), offset + len(block)
    shape = checkpoint.shape(name)
    place = [int(index) for index in np.unravel_index(first, shape)]
    return f"{name} {list(shape)} has {count} numbers that are not finite, the first ({kind}) at {place}"


def _blocks(checkpoint: Checkpoint, name: str) -> Iterator[Weights]:
    """The tensor's numbers in order, some at a time."""
    for rows in _parts(checkpoint, name):
        flat = rows.reshape(-1)  # a view: what a checkpoint reads is contiguous
        for start in range(0, flat.size, BLOCK):
            yield flat[start : start + BLOCK]


def _parts(checkpoint: Checkpoint, name: str) -> Iterator[Weights]:
    shape = checkpoint.shape(name)
    if not shape or math.prod(shape) * np.float32().nbytes <= ROWS_BYTES:
        yield checkpoint.read(name)
        return
    step = max(1, ROWS_BYTES // (math.prod(shape[1:]) * np.float32().nbytes))
    for start in range(0, shape[0], step):
        yield checkpoint.read_rows(name, start, min(start + step, shape[0]))
