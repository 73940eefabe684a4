"""Every error that the toolchain raises on purpose.

PacelineError (plugins/errors.py)
├── RecipeError              the recipe has an unknown key, a bad value, or asks for what cannot be had
├── CheckpointError          weights are missing, truncated, of the wrong shape or of an unknown format
├── ArchitectureError        the model cannot be exported under the graph contract
├── PrecisionError           a graph is not in the number formats that were asked for
├── GateError                a build is whole, and not good enough to ship
├── VocabularyError          draft and target do not speak the same token ids
├── SignatureError           a bundle cannot be signed, or its signature does not hold
└── MissingExtraError        an optional dependency is not installed
"""

from ..plugins.errors import PacelineError

__all__ = [
    "ArchitectureError",
    "CheckpointError",
    "GateError",
    "MissingExtraError",
    "PrecisionError",
    "RecipeError",
    "SignatureError",
    "VocabularyError",
]


class RecipeError(PacelineError):
    """The recipe cannot be followed as written."""


class CheckpointError(PacelineError):
    """A checkpoint cannot be read as it stands."""


class ArchitectureError(PacelineError):
    """A model does not fit the graph contract."""


class VocabularyError(PacelineError):
    """Draft and target disagree on the meaning of a token id."""


class MissingExtraError(PacelineError):
    """A stage needs packages that the base install does not bring."""


class PrecisionError(PacelineError):
    """What stands in a graph is not what the recipe asks for."""


class GateError(PacelineError):
    """A gate of the recipe does not hold; the message has the figures."""


class SignatureError(PacelineError):
    """A key, a signature or what it covers is not as it must be."""
