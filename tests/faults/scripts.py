"""The program that tests of faults run in separate processes; it checks itself against NumPy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src"
PROGRAM = """
import sys
import numpy as np
import magmath as mm

with mm.init(workers=int(sys.argv[1]), device="cpu"):
    numbers = np.random.default_rng(0).standard_normal((300, 260)).astype(np.float32)
    x, truth = mm.asarray(numbers), numbers.copy()
    np.testing.assert_allclose((x @ x.T).numpy(), numbers @ numbers.T, atol=1e-3)
    x = mm.fori_loop(0, 100, lambda i, v: mm.tanh(v * 1.01 + 0.001), x)
    for _ in range(100):
        truth = np.tanh(truth * np.float32(1.01) + np.float32(0.001))
    np.testing.assert_allclose(x.numpy(), truth, atol=1e-3)
    np.testing.assert_array_equal(mm.sort(mm.asarray(numbers.ravel())).numpy(), np.sort(numbers, None))
    large = np.ones((3000, 1000))
    assert float(mm.sum(mm.asarray(large) * 2)) == 6e6
print("right")
"""


def run(
    workers: int, *command: str, program: str = PROGRAM, folder: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder, under a command where one is given; `""` unsets a variable."""
    given = os.environ | {"MAGMATH_COMPILE_AFTER": "0", "PYTHONPATH": str(SOURCE)} | environment
    return subprocess.run(
        [*command, sys.executable, "-W", "always", "-c", program, str(workers)],
        env={name: value for name, value in given.items() if value != ""},
        cwd=folder, capture_output=True, text=True, timeout=200,
    )  # fmt: skip


def check(done: subprocess.CompletedProcess[str], *warnings: str) -> None:
    """Fail unless the program computed right numbers, with these warnings and no others."""
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["right"]
    said = [line for line in done.stderr.splitlines() if "Warning: " in line]
    said = [line for line in said if "processors of this machine" not in line]
    assert len(said) == len(warnings), done.stderr
    for text, line in zip(warnings, said, strict=True):
        assert text in line


def with_tmpfs(place: str, size: str) -> list[str]:
    """A command that runs another one with a small file system at `place`."""
    return [
        "unshare",
        "-m",
        "sh",
        "-c",
        f'mount -t tmpfs -o size={size} tmpfs {place} && exec "$@"',
        "-",
    ]


def may_mount() -> bool:
    """Whether this process may mount a file system of its own."""
    command = [*with_tmpfs("/mnt", "64k"), "true"]
    is_available = shutil.which("unshare") is not None and os.path.isdir("/mnt")
    return is_available and subprocess.run(command, capture_output=True).returncode == 0


def as_unknown_user() -> list[str]:
    """A command that runs another one as a user without an entry in the password database, which
    may read all files."""
    may = "+dac_read_search"
    return [
        "setpriv",
        "--reuid",
        "54321",
        "--regid",
        "54321",
        "--clear-groups",
        "--inh-caps",
        may,
        "--ambient-caps",
        may,
    ]


def may_change_user() -> bool:
    """Whether this process may become that user."""
    is_available = shutil.which("setpriv") is not None and os.getuid() == 0
    return (
        is_available
        and subprocess.run([*as_unknown_user(), "true"], capture_output=True).returncode == 0
    )
