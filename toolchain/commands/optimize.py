"""`paceline optimize`: run the portable passes on an exported graph and say what each did, or why not."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from ..extras import require_extra
from .console import open_progress, print_json, print_table

if TYPE_CHECKING:
    from ...passes.base import PassReport

__all__ = ["optimize"]


def optimize(
    graph: Annotated[Path, typer.Argument(help="Graph written by 'paceline export'.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Graph file to write; weights go beside it.")],
    explain: Annotated[bool, typer.Option("--explain", help="Say why patterns did not fire.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the passes as JSON.")] = False,
) -> None:
    """Fuse, page and name GRAPH; the result still runs on any stock onnxruntime."""
    require_extra("build", "paceline optimize")
    import onnx_ir as ir

    from ...passes.target import Target
    from ..graph_file import open_graph, save_graph
    from ..optimize import optimize as run_passes

    progress = open_progress(as_json)
    with progress.stage("optimize"):
        model: ir.Model = open_graph(graph)
        reports = run_passes(model, Target())
    with progress.stage("write"):
        output.parent.mkdir(parents=True, exist_ok=True)
        save_graph(model, output)
    if as_json:
        print_json({"passes": [asdict(report) for report in reports]})
    else:
        print_table(_table(reports, explain))


def _table(reports: "tuple[PassReport, ...]", explain: bool) -> Table:
    table = Table("pass", "rewrites", "left alone", *(["why"] if explain else []), box=None)
    for report in reports:
        reasons = "\n".join(report.reasons[:8])
        table.add_row(report.name, str(report.count), str(len(report.reasons)), *([reasons] if explain else []))
    return table
