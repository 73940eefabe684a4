"""What a build did: counts, reasons, sizes, seconds and peak memory, for people, for machines and for the bundle."""

import resource
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from ..passes.base import PassReport
from ..runtime.manifest import RoleEntry

__all__ = ["BuildReport", "RoleReport"]


@dataclass(frozen=True)
class RoleReport:
    """One role: what stands in the manifest, and what each pass did and did not do."""

    entry: RoleEntry
    passes: tuple[PassReport, ...]


@dataclass(frozen=True)
class BuildReport:
    """A finished build. `peak_bytes` is the largest resident size of the process so far."""

    output: Path
    roles: Mapping[str, RoleReport]
    seconds: float
    peak_bytes: int

    @classmethod
    def measured(cls, output: Path, roles: Mapping[str, RoleReport], seconds: float) -> "BuildReport":
        """A report with the process's peak memory as it is now."""
        unit = 1 if sys.platform == "darwin" else 1024
        return cls(output, roles, seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)

    def as_dict(self) -> dict[str, object]:
        """The same as a JSON object."""
        return {
            "bundle": str(self.output),
            "seconds": round(self.seconds, 1),
            "peak_bytes": self.peak_bytes,
            "roles": {role: [asdict(report) for report in entry.passes] for role, entry in self.roles.items()},
        }

    def summary(self) -> str:
        """One line for a person."""
        rewrites = sum(report.count for role in self.roles.values() for report in role.passes)
        return (
            f"{self.output}: {' + '.join(self.roles)}, {rewrites} rewrites, {self.seconds:.0f} s, "
            f"peak {self.peak_bytes / 2**20:.0f} MiB"
        )
