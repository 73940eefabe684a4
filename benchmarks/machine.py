"""What was measured on, and whether others were using it: facts for the report, a meter for the driver.

Linux only (/proc). The meter counts what every process but the measured one got, and what the hypervisor took away; it
cannot see a neighbour who wears out caches and memory, hence interleaving and medians on top of it.
"""

import os
import platform
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

__all__ = ["BusyMeter", "Machine", "describe_machine", "wait_until_quiet"]

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
TELLING = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8")
QUIET_SHARE = 0.06


@dataclass(frozen=True)
class Machine:
    """Facts that belong beside every number."""

    processor: str
    cores: int
    features: tuple[str, ...]
    memory_gib: int
    system: str
    python: str
    date: str

    def as_dict(self) -> dict[str, object]:
        """The facts as a JSON object."""
        return asdict(self)


def describe_machine() -> Machine:
    """This machine, now."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    flags = fields.get("flags", "").split()
    memory = Path("/proc/meminfo").read_text().split()
    return Machine(
        processor=f"{fields.get('model name', platform.machine())}, family {fields.get('cpu family', '?')} "
        f"model {fields.get('model', '?')}",
        cores=len(os.sched_getaffinity(0)),
        features=tuple(flag for flag in TELLING if flag in flags),
        memory_gib=round(int(memory[memory.index("MemTotal:") + 1]) / 2**20),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
    )


class BusyMeter:
    """Counts from its creation on."""

    def __init__(self) -> None:
        self._begin_s = time.perf_counter()
        self._busy_s = _busy_s()

    def foreign_share(self, own_s: float) -> float:
        """0..1: the part of all cores that ran something other than the `own_s` CPU seconds of the measured process."""
        wall_s = time.perf_counter() - self._begin_s
        return max(0.0, _busy_s() - self._busy_s - own_s) / (wall_s * (os.cpu_count() or 1))


def wait_until_quiet(patience_s: float, window_s: float = 1.0) -> float:
    """Return once others leave the machine alone for `window_s`, or after `patience_s`; seconds waited."""
    begin_s = time.perf_counter()
    while True:
        meter, own_s = BusyMeter(), time.process_time()
        time.sleep(window_s)
        waited_s = time.perf_counter() - begin_s
        if meter.foreign_share(time.process_time() - own_s) < QUIET_SHARE or waited_s > patience_s:
            return waited_s


def _busy_s() -> float:
    """Seconds since boot that all cores together were busy or taken away; guest time is part of user time."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_S
