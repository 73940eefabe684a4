"""What a build did: counts, reasons, sizes, seconds and peak memory, for people, for machines and for the bundle."""

import json
import resource
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from ..runtime.manifest import RoleEntry
from .build_role import RoleResult

__all__ = ["BuildReport", "RoleReport"]


@dataclass(frozen=True)
class RoleReport:
    """One role: what stands in the manifest, and what its stages did and measured."""

    entry: RoleEntry
    result: RoleResult


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
            "roles": {role: [asdict(report) for report in one.result.passes] for role, one in self.roles.items()},
        }

    def accuracy_json(self) -> str:
        """reports/accuracy.json: the formats that stand in the graphs, and the gate's figures where there is one."""
        roles = {
            role: {
                "formats": dict(sorted(Counter(one.result.formats.values()).items())),
                "layers": dict(sorted(one.result.formats.items())),
                "gate": None if one.result.gate is None else one.result.gate.as_dict(),
            }
            for role, one in self.roles.items()
        }
        return json.dumps(roles, indent=2) + "\n"

    def summary(self) -> str:
        """One line for a person."""
        gate = self.roles["target"].result.gate
        accuracy = "" if gate is None else f"\n{gate.summary()}"
        rewrites = sum(report.count for role in self.roles.values() for report in role.result.passes)
        return (
            f"{self.output}: {' + '.join(self.roles)}, {rewrites} rewrites, {self.seconds:.0f} s, "
            f"peak {self.peak_bytes / 2**20:.0f} MiB{accuracy}"
        )
