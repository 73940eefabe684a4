"""`paceline demo`: build the demo model, ride it plain and drafted, and say how to go on."""

from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from ..extras import require_extra
from .bench import measure_bundle, table_of
from .console import open_progress, print_json, print_line, print_table

__all__ = ["demo"]

NAME = "smollm2-135m"
GO_ON = """
How to go on
  paceline run {bundle} -p "What is a paceline?"          ask it something
  paceline bench {bundle} --streams 1,2,4,8               measure more
  paceline inspect {bundle}                               what is in the bundle
  paceline build my-recipe.yaml                           your own model; recipes/ has examples

The draft engine of this bundle is four layers of the target, untrained: it is seldom right and costs more than it
brings. It shows that a second engine rides along and that the tokens stay the same.
"""


def demo(
    output_dir: Annotated[Path, typer.Option("--output-dir", "-o", help="Where to build.")] = Path("bundles") / NAME,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Build even if the bundle is there.")] = False,
    max_tokens: Annotated[int, typer.Option(help="Tokens that every request writes.")] = 48,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")] = False,
) -> None:
    """Build SmolLM2-135M and compare plain decoding with each drafting method, at 1 and 8 streams."""
    require_extra("demo", "the demo's model")
    require_extra("cpu", "running cpu engines")
    from ..bench_plan import BenchPlan

    if rebuild or not (output_dir / "manifest.json").is_file():
        _build(output_dir, as_json)
    rows = measure_bundle(output_dir, BenchPlan(max_tokens=max_tokens), None, as_json)
    if as_json:
        print_json({"bundle": str(output_dir), "rows": [row.as_dict() for row in rows]})
        return
    print_table(table_of(rows))
    print_line(GO_ON.format(bundle=output_dir))


def _build(output_dir: Path, quiet: bool) -> None:
    require_extra("build", "building the demo")
    from ..build import build_bundle
    from ..recipe import load_recipe

    with resources.as_file(resources.files("paceline") / "recipes" / f"{NAME}.yaml") as recipe:
        build_bundle(load_recipe(recipe), output_dir, open_progress(quiet))
