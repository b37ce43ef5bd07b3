"""The processors and the memory that a process may use: control groups, affinity, limits."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from magmath.comm.host_memory import MAX_FILES, allow_many_mappings
from magmath.core import cgroup, resources

V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = (
    "31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "32 23 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
)
NO_LIMIT = "9223372036854771712"


def tree(root: Path, groups: str, mounts: str, files: Mapping[str, str]) -> Path:
    """A root directory with this content of /proc and /sys."""
    written = {"proc/self/cgroup": groups, "proc/self/mountinfo": mounts, **files}
    for name, text in written.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return root


def test_nothing_is_limited_where_there_are_no_control_groups(tmp_path: Path) -> None:
    assert cgroup.memory_limit(tmp_path) is None
    assert cgroup.cpu_quota(tmp_path) is None
    assert cgroup.oom_kills(tmp_path) is None


def test_names_of_folders_may_separate_lines(tmp_path: Path) -> None:
    """All separators of Python except "\\n" are in names as they are."""
    names = "".join(f"3{i} 23 0:26 / /mnt/a{c}b rw - ext4 /dev/sd{c} rw\n" for i, c in
                    enumerate("\r\x0b\x0c\x1c\x85\u2028"))  # fmt: skip
    files = {"sys/fs/cgroup/my\x85job/memory.max": "4000000\n"}
    root = tree(tmp_path, "0::/my\x85job\n", f"{names}\n40 23 -\n{V2}", files)
    assert cgroup.memory_limit(root) == 4_000_000


def test_version_2_takes_the_tightest_level(tmp_path: Path) -> None:
    groups = "sys/fs/cgroup/"
    root = tree(
        tmp_path, "0::/jobs/mine\n", V2,
        {
            groups + "jobs/mine/memory.max": "max\n",
            groups + "jobs/mine/memory.high": "5000000\n",
            groups + "jobs/memory.max": "4000000\n",
            groups + "jobs/memory.high": "max\n",
            groups + "jobs/mine/cpu.max": "max 100000\n",
            groups + "jobs/cpu.max": "150000 100000\n",
            groups + "jobs/mine/memory.events": "low 0\nhigh 3\noom 1\noom_kill 2\n",
        },
    )  # fmt: skip
    assert cgroup.memory_limit(root) == 4_000_000
    assert cgroup.cpu_quota(root) == 1.5
    assert cgroup.oom_kills(root) == 2
    (root / groups / "jobs/mine/memory.high").write_text("3000000\n")
    assert cgroup.memory_limit(root) == 3_000_000


def test_version_1_has_a_hierarchy_for_each_controller(tmp_path: Path) -> None:
    groups = "4:memory:/docker/x\n2:cpu,cpuacct:/docker/y\n0::/\n"
    root = tree(
        tmp_path, groups, V1,
        {
            "sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": NO_LIMIT,
            "sys/fs/cgroup/memory/docker/x/memory.oom_control": "under_oom 0\noom_kill 7\n",
            "sys/fs/cgroup/memory/docker/memory.limit_in_bytes": "123456789\n",
            "sys/fs/cgroup/cpu,cpuacct/docker/y/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu,cpuacct/docker/y/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us": "350000\n",
            "sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_period_us": "100000\n",
        },
    )  # fmt: skip
    assert cgroup.memory_limit(root) == 123_456_789
    assert cgroup.cpu_quota(root) == 3.5
    assert cgroup.oom_kills(root) == 7


def test_a_container_without_a_namespace_sees_its_own_mount(tmp_path: Path) -> None:
    """/proc/self/cgroup names the host's path; the mount shows that group as its root."""
    mounts = V1.replace("0:27 / ", "0:27 /docker/x ").replace(" /sys/", r" /my\040sys/", 1)
    root = tree(
        tmp_path, "4:memory:/docker/x/inner\n", mounts,
        {
            "my sys/fs/cgroup/memory/inner/memory.limit_in_bytes": "2000\n",
            "my sys/fs/cgroup/memory/memory.limit_in_bytes": "1000\n",
        },
    )  # fmt: skip
    assert cgroup.memory_limit(root) == 1000


@pytest.mark.parametrize("path", ["/../../elsewhere", "/not/mounted/here"])
def test_a_group_outside_the_mount_is_judged_by_the_mount(tmp_path: Path, path: str) -> None:
    root = tree(tmp_path, f"0::{path}\n", V2, {"sys/fs/cgroup/memory.max": "77\n"})
    assert cgroup.memory_limit(root) == 77


def test_unreadable_values_limit_nothing(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/cpu.max": "garbage\n", "sys/fs/cgroup/memory.max": "\n"}
    root = tree(tmp_path, "0::/\n", V2, files)
    assert cgroup.cpu_quota(root) is None
    assert cgroup.memory_limit(root) is None


@pytest.mark.parametrize(
    ("quota", "expected"), [("50000", 1), ("150000", 1), ("200000", 2), ("max", 4), ("900000", 4)]
)
def test_a_quota_is_rounded_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, expected: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2, 3})
    root = tree(tmp_path, "0::/\n", V2, {"sys/fs/cgroup/cpu.max": f"{quota} 100000\n"})
    assert resources.processor_count(root) == expected


def test_workers_share_the_memory_and_leave_some(tmp_path: Path) -> None:
    limit = 8 << 30
    root = tree(tmp_path, "0::/\n", V2, {"sys/fs/cgroup/memory.max": f"{limit}\n"})
    available = resources.usable_memory(root)
    assert available <= limit
    shares = [resources.memory_share(workers, root) for workers in (1, 2, 4, 64)]
    assert shares == sorted(shares, reverse=True)
    for workers, share in zip((1, 2, 4, 64), shares, strict=True):
        assert available // resources.MIN_ARRAY_SHARE // workers <= share
        assert share * workers <= available - available // resources.RESERVED_SHARE


def _output(*command: str, code: str) -> list[str]:
    done = subprocess.run(
        [*command, sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_a_limit_of_the_address_space_counts() -> None:
    code = (
        "import resource; from magmath.core import resources; "
        "resource.setrlimit(resource.RLIMIT_AS, (3 << 30, resource.RLIM_INFINITY)); "
        "print(resources.usable_memory())"
    )
    (bytes_,) = _output(code=code)
    assert int(bytes_) <= 3 << 30


def test_the_affinity_mask_is_respected() -> None:
    """By the pool in this process, and by every library in it."""
    first = str(min(os.sched_getaffinity(0)))
    code = (
        "import magmath as mm; import torch; pool = mm.init().pool; "
        "print(pool.topology.threads, torch.get_num_threads())"
    )
    assert _output("taskset", "-c", first, code=code) == ["1", "1"]


def test_a_quota_limits_the_threads_of_every_library(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import numpy, torch; from magmath.core import cgroup; cgroup.cpu_quota = lambda root: "
        "1.9; import magmath as mm; pool = mm.init().pool; mm.evaluate(mm.ones((300, 300)) @ "
        "mm.ones(300));from threadpoolctl import threadpool_info; print(pool.topology.threads, "
        "max(x['num_threads'] for x in threadpool_info()))"
    )
    assert _output(code=code) == ["1", "1"]


def test_workers_may_have_as_many_open_files_as_the_system_allows() -> None:
    """Each mapping of shared memory needs one."""
    limit, maximum = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = MAX_FILES if maximum == resource.RLIM_INFINITY else min(maximum, MAX_FILES)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, 512), maximum))
        for _ in range(2):
            allow_many_mappings()
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (allowed, maximum)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, maximum))
