"""An unusable cache folder never fails a computation: one warning, correct results, no files
left."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from faults.scripts import (
    PROGRAM,
    as_unknown_user,
    check,
    may_change_user,
    may_mount,
    run,
    with_tmpfs,
)
from magmath.core.atomic_replace import DRAFT_PATTERN
from processes import eventually

NO_MOUNT = "this process may not mount file systems"
NO_USER = "this process may not change its user"
WORKERS = pytest.mark.parametrize("workers", [0, 2])


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for temporary files, in which every user may write."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.getuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o755)
    made = tmp_path / "t"
    made.mkdir()
    made.chmod(0o1777)
    for name in ("MAGMATH_CACHE", "XDG_CACHE_HOME", "MAGMATH_CACHE_FALLBACK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TMPDIR", str(made))
    return made


STORING = """
from magmath.core.disk_cache import DiskCache
for _ in range(2):
    DiskCache("native").write("a", b"code")
    assert DiskCache("native").read("a") == b"code"
print("right")
"""
"""What computations do with the folder, without them: this takes a tenth of the time."""


@pytest.mark.parametrize(
    ("workers", "variable", "value", "program"),
    [
        (0, "HOME", "/proc/x", PROGRAM),
        (0, "HOME", "/etc/hosts", STORING),
        (0, "XDG_CACHE_HOME", "/dev/null", STORING),
        (1, "MAGMATH_CACHE", "/proc/self/x", PROGRAM),
    ],
    ids=lambda value: {PROGRAM: "computes", STORING: "stores"}.get(value),
)
def test_a_folder_that_cannot_be_made(
    variable: str, value: str, workers: int, program: str, place: Path
) -> None:
    check(run(workers, program=program, folder=place, **{variable: value}), f"{value}")
    assert eventually(lambda: not os.listdir(place)), os.listdir(place)


@pytest.mark.skipif(not may_change_user(), reason=NO_USER)
@pytest.mark.parametrize(
    ("workers", "program", "variables", "told"),
    [
        (2, PROGRAM, {"HOME": ""}, "user 54321 has no entry in the password database"),
        (0, STORING, {"HOME": "", "MAGMATH_CACHE": "~/c"}, "MAGMATH_CACHE is ~/c, HOME is not set"),
        (0, PROGRAM, {"HOME": "/root"}, "/root/.cache/magmath cannot be used (Permission denied)"),
    ],
    ids=["no HOME", "no home to expand", "the HOME of another user"],
)
def test_a_user_without_an_entry(
    workers: int, program: str, variables: dict[str, str], told: str, place: Path
) -> None:
    variables = variables | {"PYTHONDONTWRITEBYTECODE": "1"}
    check(run(workers, *as_unknown_user(), program=program, folder=place, **variables), told)
    assert eventually(lambda: not os.listdir(place)), "no folder named ~, nothing left"


@pytest.mark.skipif(not may_mount(), reason=NO_MOUNT)
@pytest.mark.parametrize(("size", "workers"), [("4k", 0), ("4k", 2), ("64k", 0)])
def test_a_full_disk(size: str, workers: int, place: Path, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    done = run(workers, *with_tmpfs(str(full), size), folder=place, MAGMATH_CACHE=str(full))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["right"]
    said = done.stderr.count("Warning: ")
    assert said == done.stderr.count("No space left on device") <= 1, done.stderr
    assert said == 1 or size == "64k"
    assert eventually(lambda: not os.listdir(place))


@WORKERS
def test_files_that_may_not_grow(workers: int, place: Path, tmp_path: Path) -> None:
    """With a limit on files workers have no shared memory either: they exchange messages."""
    command = ["sh", "-c", 'ulimit -f 100 && exec "$@"', "-"]
    done = run(workers, *command, folder=place, MAGMATH_CACHE=str(tmp_path / "c"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["right"]
    assert ("exchange messages" in done.stderr) == (workers > 0)


def test_every_file_of_a_cache_is_damaged_at_random(place: Path) -> None:
    """Those of two workers and those of one process, whose programs differ; each finds its own."""
    cache = place / "c"
    for workers in (2, 0):
        check(run(workers, folder=place, MAGMATH_CACHE=str(cache)))
    # Compilers that the programs left complete what they write, and end.
    assert eventually(lambda: not list(cache.rglob(DRAFT_PATTERN)))
    files = sorted(path for path in cache.rglob("*") if path.is_file())
    kinds = {path.parent.name for path in files}
    assert {"native"} <= kinds <= {"native", "tuner"}  # a busy machine is no place to measure
    for path in files:
        _damage(path, random.Random(path.name))
    for workers in (2, 0):
        check(run(workers, folder=place, MAGMATH_CACHE=str(cache)))


def _damage(path: Path, choose: random.Random) -> None:
    whole = path.read_bytes() or b"x"
    place = choose.randrange(len(whole))
    flipped = bytes([whole[place] ^ 1 << choose.randrange(8)])
    damages = [
        b"",
        whole[:place],
        whole[:place] + flipped + whole[place + 1 :],
        choose.randbytes(999),
    ]
    path.write_bytes(choose.choice(damages))


@pytest.mark.parametrize("workers", [0, 1])
def test_the_folder_is_removed_after_the_process_was_killed(workers: int, place: Path) -> None:
    """At once by its workers, otherwise by the next process that needs one."""
    killed = f"""
import os, signal, magmath as mm
from magmath.core.disk_cache import DiskCache
if __name__ == "__main__":
    if {workers}:
        mm.init(workers={workers}, device="cpu")
    DiskCache("native").write("a", b"code")
    assert os.path.isdir(eval(os.environ["MAGMATH_CACHE_FALLBACK"])[0])
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert run(workers, program=killed, folder=place, HOME="/proc/x").returncode == -9
    if workers:
        assert eventually(lambda: not os.listdir(place)), os.listdir(place)
    again = "import warnings; warnings.simplefilter('ignore'); from magmath.core import cache_dir; cache_dir.readable_folders()"
    assert run(0, program=again, folder=place, HOME="/proc/x").returncode == 0
    assert not os.listdir(place)


def test_a_warning_that_is_an_error_leaves_a_cache_that_works(place: Path) -> None:
    script = """
from magmath.core.disk_cache import DiskCache
try:
    DiskCache("native").write("a", b"code")
except RuntimeWarning as error:
    print(error)
DiskCache("native").write("a", b"code")
assert DiskCache("native").read("a") == b"code"
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env=os.environ | {"HOME": "/proc/x"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("set MAGMATH_CACHE to a folder that can be written to") == 1
    assert not os.listdir(place)
