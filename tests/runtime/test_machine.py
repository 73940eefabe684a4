"""What a machine has, read from made-up trees of /proc and /sys: bare, in control groups, in containers."""

from pathlib import Path

from paceline.runtime.machine import available_bytes, examine_machine

MIB = 1 << 20
MEMINFO = "MemTotal:       16000 kB\nMemFree: 100 kB\nMemAvailable:    8192 kB\n"


def tree(root: Path, files: dict[str, object]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return root


def test_without_control_groups_the_system_decides(tmp_path: Path) -> None:
    assert available_bytes(tree(tmp_path, {"proc/meminfo": MEMINFO})) == 8 * MIB


def test_where_nothing_is_known_nothing_is_claimed(tmp_path: Path) -> None:
    assert available_bytes(tmp_path) is None


def test_the_tightest_group_above_the_process_decides(tmp_path: Path) -> None:
    """File pages are not counted as used: a bundle that was just hashed fills them."""
    root = tree(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/app/job",
            "sys/fs/cgroup/app/job/memory.max": "max",
            "sys/fs/cgroup/app/job/memory.current": 5 * MIB,
            "sys/fs/cgroup/app/memory.max": 7 * MIB,
            "sys/fs/cgroup/app/memory.current": 6 * MIB,
            "sys/fs/cgroup/app/memory.stat": f"anon 1\nactive_file {1 * MIB}\ninactive_file {2 * MIB}\nslab 5",
        },
    )
    assert available_bytes(root) == 4 * MIB


def test_a_container_sees_its_own_group_at_the_mount(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/docker/0123/only/visible/outside",
            "sys/fs/cgroup/memory.max": 3 * MIB,
            "sys/fs/cgroup/memory.current": 1 * MIB,
        },
    )
    assert available_bytes(root) == 2 * MIB


def test_version_1_is_read_too(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "5:cpu,cpuacct:/job\n4:memory:/job",
            "sys/fs/cgroup/memory/job/memory.limit_in_bytes": 4 * MIB,
            "sys/fs/cgroup/memory/job/memory.usage_in_bytes": 3 * MIB,
            "sys/fs/cgroup/memory/job/memory.stat": f"inactive_file 7\ntotal_inactive_file {1 * MIB}",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": 9223372036854771712,
            "sys/fs/cgroup/memory/memory.usage_in_bytes": 1,
        },
    )
    assert available_bytes(root) == 2 * MIB


def test_a_group_over_its_limit_leaves_nothing(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": 1, "sys/fs/cgroup/memory.current": 2}
    assert available_bytes(tree(tmp_path, files)) == 0


def test_instruction_sets_of_both_architectures(tmp_path: Path) -> None:
    assert examine_machine(
        tree(tmp_path / "x", {"proc/cpuinfo": "model\t: a\nflags\t\t: fpu avx2"})
    ).instruction_sets == {
        "fpu",
        "avx2",
    }
    assert examine_machine(tree(tmp_path / "a", {"proc/cpuinfo": "Features : asimd"})).instruction_sets == {"asimd"}
    assert examine_machine(tmp_path / "nothing").instruction_sets == frozenset()


def test_this_machine_is_described() -> None:
    machine = examine_machine()
    assert machine.versions["onnxruntime"].count(".") == 2
    assert machine.available_bytes is None or machine.available_bytes > 0
    assert machine.architecture
