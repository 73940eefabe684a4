"""Third-party code that fails on a model, told as what it is: that model does not fit.

Whatever torch, transformers or the exporter raise flows in; an ArchitectureError with the reason at the bottom of it
flows out. Letting their errors through was the alternative and lost: they speak of symbolic sizes and proxies.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from ..plugins.errors import PacelineError
from .errors import ArchitectureError

__all__ = ["blaming"]

MAX_REASON = 400  # characters of somebody else's message


@contextmanager
def blaming(kind: str) -> Iterator[None]:
    """Turn whatever third-party code raises into an ArchitectureError about the model `kind`."""
    try:
        yield
    except PacelineError:
        raise
    except Exception as error:
        root: BaseException = error
        while root.__cause__ is not None:
            root = root.__cause__
        reason = next((line.strip() for line in str(root).splitlines() if line.strip()), "no reason given")
        raise ArchitectureError(
            f"{kind} cannot be exported: {type(root).__name__}: {reason[:MAX_REASON]}",
            needed="a decoder-only model with one causal attention a layer and no control flow that depends on data",
            do="see the families in README.md, or file the configuration with this message",
        ) from error
