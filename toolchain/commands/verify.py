"""`paceline verify`: is a bundle what was built, and what was signed?"""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ...plugins.errors import PacelineError
from ..sign import IdentityTrust, KeyTrust, Trust
from ..verify_bundle import Verification, verify_bundle
from .console import print_json, print_line, print_table

__all__ = ["verify"]

DAMAGED = 2


def verify(
    bundle: Annotated[Path, typer.Argument(help="Bundle folder.")],
    public_key: Annotated[Path | None, typer.Option(help="Key (PEM) of whoever must have signed it.")] = None,
    identity: Annotated[
        str | None, typer.Option(help="Who must have signed it with sigstore: an e-mail, a URI.")
    ] = None,
    identity_provider: Annotated[str | None, typer.Option(help="Who vouches for the identity: a URL.")] = None,
    trust_config: Annotated[
        Path | None, typer.Option(help="Sigstore's roots of trust as a file; without it they come from the network.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Compare every file of BUNDLE with its manifest, and its signature with a key or an identity. Exit code 2: bad."""
    found = verify_bundle(bundle, _trust(public_key, identity, identity_provider, trust_config))
    if as_json:
        print_json(found.as_dict())
    else:
        _print(found)
    if not found.is_good:
        raise typer.Exit(DAMAGED)


def _trust(key: Path | None, identity: str | None, provider: str | None, trust_config: Path | None) -> Trust | None:
    others = (identity, provider, trust_config)
    if key is not None and all(one is None for one in others):
        return KeyTrust(key)
    if key is None and identity and provider:
        return IdentityTrust(identity, provider, trust_config)
    if key is None and all(one is None for one in others):
        return None
    raise PacelineError(
        "options for a signature that do not go together",
        needed="--public-key alone, or --identity with --identity-provider",
        do="leave one kind out, or give both of the other",
    )


def _print(found: Verification) -> None:
    if found.problems:
        table = Table("file", "found", "needed", title=f"{len(found.problems)} problems")
        for one in found.problems:
            table.add_row(escape(one.name), escape(one.found), escape(one.needed))
        print_table(table)
    else:
        print_line(f"{found.bundle}: all {found.num_files} files are as they were built")
    print_line(f"signature: {found.signature}{': ' + found.reason if found.reason else ''}")
