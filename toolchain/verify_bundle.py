"""Everything that can be said of a bundle's integrity, in one go: files, strangers among them, signature.

A folder and, where there is one, a key or an identity flow in; a `Verification` flows out with every file that is not
as it was built. Stopping at the first problem, as opening does, lost: whoever looks into a damaged copy wants them all.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from ..runtime.bundle import read_manifest
from ..runtime.bundle_files import DigestCheck, FileProblem, extra_files, file_entry, file_problems
from ..runtime.errors import BundleError
from ..runtime.manifest import MANIFEST, SIGNATURE, Manifest
from .errors import SignatureError
from .sign import Trust, changed_since_signing, check_signature

__all__ = ["SignatureState", "Verification", "signature_state", "verify_bundle"]

NOTHING_ELSE = "nothing but the files of the manifest"


class SignatureState(StrEnum):
    """What is known of a bundle's signature."""

    UNSIGNED = "unsigned"
    NOT_CHECKED = "signed, not checked"
    GOOD = "signed, and the signature holds"
    BAD = "the signature does not hold"


@dataclass(frozen=True)
class Verification:
    """What was found; `reason` says why a signature does not hold."""

    bundle: Path
    num_files: int
    problems: tuple[FileProblem, ...]
    signature: SignatureState
    reason: str = ""

    @property
    def is_good(self) -> bool:
        """Whether nothing was found to be wrong."""
        return not self.problems and self.signature is not SignatureState.BAD

    def as_dict(self) -> dict[str, object]:
        """The same as a JSON object."""
        return {
            "bundle": str(self.bundle),
            "good": self.is_good,
            "num_files": self.num_files,
            "problems": [asdict(one) for one in self.problems],
            "signature": str(self.signature),
            "reason": self.reason,
        }


def verify_bundle(folder: Path, trust: Trust | None = None) -> Verification:
    """Compare every file of the bundle in `folder`; with `trust`, its signature too.

    Raises: BundleError when `folder` is no folder, MissingExtraError.
    """
    if not folder.is_dir():
        raise BundleError(f"{folder} is missing", needed="a bundle folder", do="check the path")
    try:
        manifest = read_manifest(folder)
        problems, num_files = tuple(_problems(folder, manifest)), len(manifest.files)
    except BundleError as error:
        damage = FileProblem(MANIFEST, error.found.removeprefix(f"{MANIFEST} "), error.needed)
        problems, num_files = (damage, *changed_since_signing(folder)), 0
    signature, reason = signature_state(folder), ""
    if trust is not None:
        try:
            check_signature(folder, trust)
            signature = SignatureState.GOOD
        except SignatureError as error:
            signature, reason = SignatureState.BAD, error.found.removeprefix("the signature does not hold: ")
    return Verification(folder, num_files, problems, signature, reason)


def signature_state(folder: Path) -> SignatureState:
    """Whether there is a signature; no look into it."""
    return SignatureState.NOT_CHECKED if (folder / SIGNATURE).exists() else SignatureState.UNSIGNED


def _problems(folder: Path, manifest: Manifest) -> Iterator[FileProblem]:
    """Damaged and missing files, those that only have another name, and strangers."""
    extra = extra_files(folder, manifest.files)
    for problem in file_problems(folder, manifest.files, DigestCheck.FULL):
        renamed = _found_again(folder, manifest, problem.name, extra)
        if renamed is None:
            yield problem
        else:
            extra.remove(renamed)
            yield FileProblem(problem.name, f"is missing: {renamed} has its content", f"it as {problem.name}")
    for name in extra:
        yield FileProblem(name, "is not part of the bundle", NOTHING_ELSE)


def _found_again(folder: Path, manifest: Manifest, name: str, extra: list[str]) -> str | None:
    """Which of the strangers is the missing file `name` under another name."""
    if (folder / name).exists():
        return None
    expected = manifest.files[name]
    for other in extra:
        path = folder / other
        is_candidate = not path.is_symlink() and path.is_file() and path.stat().st_size == expected.size_bytes
        if is_candidate and file_entry(path) == expected:
            return other
    return None
