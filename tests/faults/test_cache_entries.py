"""Entries of the cache: a damaged entry is a miss, concurrent writers are safe, and the bound is
respected."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from magmath.core import disk_cache as module
from magmath.core.disk_cache import DiskCache

CACHE = DiskCache("native")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache's folder, new for each test."""
    monkeypatch.setenv("MAGMATH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MAGMATH_CACHE_LIMIT", raising=False)
    return tmp_path / "cache" / "native"


def raising(error: Exception) -> Callable[..., Any]:
    """A function that raises an error."""

    def function(*_: Any, **__: Any) -> Any:
        raise error

    return function


def never() -> bytes:
    raise AssertionError("the entry is there")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(), st.data())
def test_a_damaged_entry_is_missing_deleted_and_made_again(
    folder: Path, content: bytes, data: st.DataObject
) -> None:
    path = folder / "a"
    path.unlink(missing_ok=True)
    assert CACHE.get("a", lambda: content) == content
    assert CACHE.get("a", never) == content
    whole = path.read_bytes()
    cut, place = (data.draw(st.integers(0, len(whole) - 1)) for _ in range(2))
    flipped = bytes([whole[place] ^ 1 << data.draw(st.integers(0, 7))])
    damaged = [
        whole[:cut],
        whole[:place] + flipped + whole[place + 1 :],
        whole + b"\0",
        data.draw(st.binary()),
    ]
    for text in damaged:
        path.write_bytes(text)
        assert CACHE.has_file("a")
        assert CACHE.read("a") is None
        assert not path.exists()
        assert CACHE.get("a", lambda: content) == content


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_an_entry_outlives_a_lack_of_resources(
    folder: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    CACHE.write("a", b"code")
    with monkeypatch.context() as patched:
        patched.setattr(module.os, "open", raising(OSError(code, os.strerror(code))))
        assert CACHE.read("a") is None
    assert CACHE.read("a") == b"code"


def test_an_entry_under_another_name_is_none(folder: Path) -> None:
    CACHE.write("a", b"code")
    (folder / "a").rename(folder / "b")
    assert CACHE.read("b") is None


def test_symbolic_links_are_never_read(folder: Path, tmp_path: Path) -> None:
    CACHE.write("a", b"code")
    (folder / "a").rename(tmp_path / "a")
    (folder / "a").symlink_to(tmp_path / "a")
    assert CACHE.read("a") is None
    os.mkfifo(folder / "a")
    assert CACHE.read("a") is None
    (folder / "a").mkdir()
    assert CACHE.read("a") is None
    (folder / "a").rmdir()
    CACHE.write("a", b"code")
    if os.getuid() == 0:
        os.chown(folder / "a", 54321, 54321)
        assert CACHE.read("a") is None


def test_only_the_user_reads_entries(folder: Path) -> None:
    CACHE.write("a", b"code")
    assert folder.stat().st_mode & 0o077 == 0
    assert (folder / "a").stat().st_mode & 0o077 == 0


def test_the_bound_deletes_what_was_not_read_for_the_longest_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAGMATH_CACHE_LIMIT", "1")
    for i in range(9):
        CACHE.write(f"{i}", bytes(100_000))
        os.utime(folder / f"{i}", (time.time() - 10**6 + i,) * 2)
    assert CACHE.read("0") is not None, "which makes it the last one used"
    CACHE.write("9", bytes(100_000))
    left = {entry.path.name for entry in module.list_entries(folder.parent)}
    assert left.issuperset({"0", "9", "8"})
    assert not left & {"1"}
    assert sum(entry.nbytes for entry in module.list_entries(folder.parent)) <= 1_000_000
    CACHE.write("huge", bytes(2_000_000))
    assert not CACHE.has_file("huge"), "it would drive out all others"


def test_a_bound_that_is_no_number_is_told_and_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAGMATH_CACHE_LIMIT", "much")
    with pytest.warns(RuntimeWarning, match="'much', which is no whole number of megabytes"):
        CACHE.write("a", b"code")
    assert CACHE.read("a") == b"code"


def _work(seed: int) -> None:
    """Write, read and clear at random; what is read is what was written under that name."""
    choose = random.Random(seed)
    for _ in range(300):
        name = f"{choose.randrange(12)}"
        right = name.encode() * choose.choice((1, 5000, 20_000))
        action = choose.randrange(20)
        if action == 0:
            module.clear(Path(os.environ["MAGMATH_CACHE"]))
        elif action < 8:
            CACHE.write(name, right)
        elif action < 14:
            result = CACHE.read(name)
            assert result is None or result.strip(name.encode()) == b"", name
        else:
            assert CACHE.get(name, lambda right=right: right).strip(name.encode()) == b""


def test_many_processes_write_read_and_clear_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAGMATH_CACHE_LIMIT", "1")
    monkeypatch.setattr(os, "fsync", lambda file: None)
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    assert all(
        CACHE.read(entry.path.name) is not None for entry in module.list_entries(folder.parent)
    )


def test_a_writer_that_was_killed_leaves_nothing_that_is_read(folder: Path) -> None:
    CACHE.write("a", b"code")
    draft = folder / ".a.saving-12345678"
    draft.mkdir()
    (draft / "a").write_bytes(b"half")
    assert CACHE.read("a") == b"code"
    CACHE.write("b", b"other code")
    assert CACHE.read("b") == b"other code"
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b"]


def test_a_process_that_ends_completes_what_it_writes(folder: Path) -> None:
    """Such as a compiler whose parent has ended."""
    program = """
import os, threading, time
from magmath.core import disk_cache
started = threading.Event()
synchronize = os.fsync
def slow(file):
    started.set()
    time.sleep(0.3)
    synchronize(file)
os.fsync = slow
threading.Thread(target=lambda: disk_cache.DiskCache("native").write("a", b"code")).start()
started.wait()
disk_cache.exit_after_writes(3)
"""
    assert subprocess.run([sys.executable, "-c", program]).returncode == 3
    assert CACHE.read("a") == b"code"
    assert [path.name for path in folder.iterdir()] == ["a"]
