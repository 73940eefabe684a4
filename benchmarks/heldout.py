"""Prose that nobody tuned anything on: the docstrings of Python's own library, read at run time.

Nothing goes in; one text of some ten thousand tokens comes out. It depends on the Python version,
which the report names; a file of somebody else's prose in the repository would not, but is not ours to publish.
"""

import importlib
import inspect

__all__ = ["heldout_text"]

MODULES = ("difflib", "heapq", "textwrap", "fractions", "statistics")


def heldout_text() -> str:
    """Docstrings of the modules and of what they define, in alphabetical order, a blank line between them."""
    return "\n\n".join(text for name in MODULES for text in _docstrings(importlib.import_module(name)))


def _docstrings(module: object) -> list[str]:
    members = [module, *(value for name, value in sorted(vars(module).items()) if _is_own(module, value))]
    return [text for text in map(inspect.getdoc, members) if text]


def _is_own(module: object, value: object) -> bool:
    return callable(value) and getattr(value, "__module__", None) == getattr(module, "__name__", "")
