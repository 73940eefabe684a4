"""build/peers/checkpoint to OpenVINO's own files, by optimum-intel's documented command.

Out: `openvino-fp16`, `openvino-int8` (its default for 8 bits: asymmetric, one scale per row) and `openvino-int8-sym`.
Its export knows no bf16 weights: they are stored in fp16 and computed in bf16 by INFERENCE_PRECISION_HINT. Run in the
peers' environment: `python benchmarks/convert_openvino.py`. Folders that exist are kept.
"""

import subprocess
import sys
from pathlib import Path

from contestants import MODELS

EXPORTS = {
    "openvino-fp16": ("--weight-format", "fp16"),
    "openvino-int8": ("--weight-format", "int8"),
    "openvino-int8-sym": ("--weight-format", "int8", "--sym"),
}


def main() -> None:
    """Export what is missing; a folder gets its name once it is complete."""
    command = Path(sys.executable).with_name("optimum-cli")
    for name, options in EXPORTS.items():
        folder, partial = MODELS / name, MODELS / f"{name}.partial"
        if folder.exists():
            continue
        source = ("--model", MODELS / "checkpoint", "--task", "text-generation-with-past")
        subprocess.run([command, "export", "openvino", *source, *options, partial], check=True)
        partial.rename(folder)


if __name__ == "__main__":
    main()
