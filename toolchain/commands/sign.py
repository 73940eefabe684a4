"""`paceline sign`: a signature into a bundle."""

import os
from pathlib import Path
from typing import Annotated

import typer

from ..sign import sign_bundle
from .console import print_json, print_line

__all__ = ["sign"]

PASSWORD = "PACELINE_KEY_PASSWORD"


def sign(
    bundle: Annotated[Path, typer.Argument(help="Bundle folder.")],
    private_key: Annotated[Path, typer.Option(help=f"Elliptic curve key in PEM; its password comes from {PASSWORD}.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Check BUNDLE and sign all of it with a private key; the signature lies in the bundle."""
    signature = sign_bundle(bundle, private_key, os.environ.get(PASSWORD))
    if as_json:
        print_json({"bundle": str(bundle), "signature": str(signature)})
    else:
        print_line(f"{bundle}: signed, {signature.stat().st_size} bytes in {signature.name}")
