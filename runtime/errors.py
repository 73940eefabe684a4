"""Every error that the runtime raises on purpose.

PacelineError (plugins/errors.py)
├── BundleError              a bundle is damaged, too new, or built for something else
├── NativeLibraryError       the native library is missing or does not fit this onnxruntime
├── RequestError             a request can never be served as asked (HTTP: 400)
└── CapacityError            not now: pages or queue are full (HTTP: 429)
"""

from ..plugins.errors import PacelineError
from ..plugins.native.library import NativeLibraryError

__all__ = ["BundleError", "CapacityError", "NativeLibraryError", "PacelineError", "RequestError"]


class BundleError(PacelineError):
    """The bundle cannot be opened as it stands."""


class RequestError(PacelineError):
    """The request itself is at fault: it can never be served as asked."""


class CapacityError(PacelineError):
    """The request is fine but there is no room for it now."""
