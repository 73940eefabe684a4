"""Finding and opening the native library, without importing onnxruntime.

Nothing flows in; the path that onnxruntime registers, or a ctypes handle, flows out. The library is built with the
package (pyproject.toml, ext-modules); compiling it at first use lost: a deploy box has no compiler.
"""

import ctypes
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from ..errors import PacelineError

__all__ = ["NativeLibraryError", "isa_name", "library_path", "open_library"]

STEM = "_paceline"


class NativeLibraryError(PacelineError):
    """The native library is missing or cannot be loaded here."""


def library_path() -> Path:
    """Where the library lies. Raises: NativeLibraryError when it was not built."""
    folder = Path(__file__).parent
    for suffix in EXTENSION_SUFFIXES:
        path = folder / f"{STEM}{suffix}"
        if path.exists():
            return path
    raise NativeLibraryError(
        f"no {STEM}{EXTENSION_SUFFIXES[0]} in the package's plugins/native",
        needed="the compiled kernels",
        do="pip install paceline again (from source it needs a C++17 compiler)",
    )


def open_library() -> ctypes.CDLL:
    """The library with the signatures of what it exports to Python. Raises: NativeLibraryError."""
    path = library_path()
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise NativeLibraryError(
            f"{path.name} does not load ({error})",
            needed="a library built for this machine",
            do="pip install paceline again on this machine",
        ) from error
    library.paceline_isa.restype = ctypes.c_char_p
    return library


def isa_name() -> str:
    """The instruction set that the kernels use here: amx, avx512, avx2 or portable."""
    name: bytes = open_library().paceline_isa()
    return name.decode()
