"""On-disk cache of compiled code and measurements, by kind and name (location:
`core/cache_dir.py`).

Entries are written atomically and carry a checksum of their name and content. A file that is empty,
truncated, modified or owned by another user is not an entry: it is deleted and created again. No
function here raises OSError, except `clear`: an unreadable entry counts as missing, and an entry
that cannot be written is skipped.

The total size is bounded. A write that exceeds the bound evicts the least recently read entries.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple, NoReturn, final

from magmath.core import cache_dir
from magmath.core.atomic_replace import DRAFT_PATTERN, atomic_replace
from magmath.core.options import CACHE_LIMIT
from magmath.core.private_folder import remove_abandoned

KINDS: Final = ("machine", "native", "tuner")
"""Kinds of entries; each kind has its own folder."""

_MAGIC: Final = b"magmath cache entry 1\n"
_DIGEST_BYTES: Final = 32
_ACCESS_TIME_SECONDS: Final = 3600.0  # resolution of the recorded time of the last read
_EVICT_TO_SHARE: Final = 0.9  # of the bound, after an eviction
_LOCK_TIMEOUT: Final = 300.0  # seconds to wait for another process that creates the same entry
_WRITE_TIMEOUT: Final = 10.0  # seconds that the end of a process waits for its writes
_LOCK_POLL_SECONDS: Final = 0.02
_STALE_LOCK_SECONDS: Final = 24 * 3600.0

_being_written: list[Path] = []


@final
class CacheEntry(NamedTuple):
    """A file in the cache: time of its last use, bytes on disk, path."""

    last_used: float
    nbytes: int
    path: Path


@final
@dataclass(frozen=True)
class DiskCache:
    """The entries of one kind."""

    kind: str

    def has_file(self, name: str) -> bool:
        """Return True if a file with this name exists; `read` checks whether it is valid."""
        return any((folder / self.kind / name).exists() for folder in cache_dir.readable_folders())

    def read(self, name: str) -> bytes | None:
        """Return the content of an entry; None if it is missing or damaged."""
        for folder in cache_dir.readable_folders():
            content = _read(folder / self.kind / name)
            if content is not None:
                return content
        return None

    def contents(self) -> Iterator[bytes]:
        """Yield the contents of all valid entries."""
        seen: set[str] = set()
        for folder in cache_dir.readable_folders():
            for entry in _list_kinds(folder, (self.kind,)):
                content = None if entry.path.name in seen else _read(entry.path)
                if content is not None:
                    seen.add(entry.path.name)
                    yield content

    def write(self, name: str, content: bytes) -> None:
        """Store an entry, replacing an earlier one of this name; failures are ignored."""
        if len(content) > limit_bytes():
            return
        folder = cache_dir.writable_folder()
        while folder is not None:
            try:
                _write(folder / self.kind / name, content)
                remove_abandoned(folder / self.kind, DRAFT_PATTERN)
            except OSError as error:
                cache_dir.mark_unwritable(folder, error)
                former, folder = folder, cache_dir.writable_folder()
                if folder == former:  # the error has another cause than the folder
                    return
            else:
                _evict(folder)
                return

    def remove_drafts(self) -> None:
        """Remove what processes left that were killed while they wrote an entry."""
        folder = cache_dir.writable_folder()
        if folder is not None:
            remove_abandoned(folder / self.kind, DRAFT_PATTERN)

    def get(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Return the content of an entry, created by `make` if it is missing.

        If several processes need the entry, one creates it and the others wait.
        """
        content = self.read(name)
        if content is None:
            with self.locked(name):
                content = self.read(name)
                if content is None:
                    content = make()
                    self.write(name, content)
        return content

    @contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Hold the lock of an entry. Continues without it after `_LOCK_TIMEOUT`, or if the file
        system has no locks."""
        folder = cache_dir.writable_folder()
        path = None if folder is None else folder / self.kind / f".{name}.lock"
        lock = None if path is None else _acquire_lock(path)
        try:
            yield
        finally:
            if path is not None and lock is not None:
                with suppress(OSError):
                    path.unlink()
                os.close(lock)


def list_entries(folder: Path) -> list[CacheEntry]:
    """Return all entries in a cache folder."""
    return _list_kinds(folder, KINDS)


def clear(folder: Path) -> None:
    """Delete all entries in a cache folder. Raises OSError if one cannot be deleted."""
    for kind in KINDS:
        if (folder / kind).is_dir():
            for path in (folder / kind).iterdir():
                if not path.is_dir() or path.is_symlink():
                    path.unlink(missing_ok=True)
            remove_abandoned(folder / kind, DRAFT_PATTERN)


def exit_after_writes(status: int) -> NoReturn:
    """End this process at once, except that entries which other threads write are completed."""
    deadline = time.monotonic() + _WRITE_TIMEOUT
    while _being_written and time.monotonic() < deadline:
        time.sleep(0.001)
    os._exit(status)


def limit_bytes() -> int:
    """Return the bound on the size of all entries, in bytes."""
    return _parse_limit(CACHE_LIMIT.read()) * 10**6


@cache
def _parse_limit(text: str) -> int:
    if text.isdecimal():
        return int(text)
    warnings.warn(
        f"{CACHE_LIMIT} is {text!r}, which is no whole number of megabytes; the cache may take "
        f"{CACHE_LIMIT.default} MB",
        RuntimeWarning,
        stacklevel=2,
    )
    return int(CACHE_LIMIT.default)


# files --------------------------------------------------------------------------------------------


def _read(path: Path) -> bytes | None:
    """Return the content of an entry; delete the file and return None if it is not a valid
    entry."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            content = _checked_content(file, path.name)
        finally:
            os.close(file)
    except FileNotFoundError:
        return None
    except OSError as error:  # a symbolic link, for example
        if error.errno in cache_dir.TRANSIENT_ERRORS:
            return None
        content = None
    if content is None:
        _delete(path)
    return content


def _checked_content(file: int, name: str) -> bytes | None:
    """Return the content of an open file; None if its checksum or its owner is wrong."""
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode) or status.st_uid not in (os.geteuid(), 0):
        return None
    with open(file, "rb", closefd=False) as opened:
        whole = opened.read()
    start = len(_MAGIC) + _DIGEST_BYTES
    content = whole[start:]
    if whole[:start] != _header(name, content):
        return None
    if time.time() - status.st_mtime > _ACCESS_TIME_SECONDS:
        with suppress(OSError):
            os.utime(file)
    return content


def _delete(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def _header(name: str, content: bytes) -> bytes:
    return _MAGIC + sha256(name.encode() + b"\0" + content).digest()


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _being_written.append(path)
    try:
        with atomic_replace(path) as draft:
            file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(file, "wb") as opened:
                opened.write(_header(path.name, content))
                opened.write(content)
    finally:
        _being_written.remove(path)


def _list_files(folder: Path) -> list[Path]:
    """Return all files in the folder of a kind, including locks and foreign files."""
    with suppress(OSError), os.scandir(folder) as files:
        return [Path(file) for file in files if not file.is_dir(follow_symlinks=False)]
    return []


def _list_kinds(folder: Path, kinds: tuple[str, ...]) -> list[CacheEntry]:
    entries = []
    for path in (path for kind in kinds for path in _list_files(folder / kind)):
        if not path.name.startswith("."):
            with suppress(OSError):  # deleted by another process
                status = path.lstat()
                nbytes = max(status.st_size, status.st_blocks * 512)
                entries.append(CacheEntry(status.st_mtime, nbytes, path))
    return entries


def _evict(folder: Path) -> None:
    """If the bound is exceeded, delete the least recently read entries."""
    entries = _list_kinds(folder, KINDS)
    nbytes = sum(entry.nbytes for entry in entries)
    if nbytes <= limit_bytes():
        return
    for entry in sorted(entries):
        if nbytes <= _EVICT_TO_SHARE * limit_bytes():
            break
        _delete(entry.path)
        nbytes -= entry.nbytes
    for kind in KINDS:
        _remove_stale_locks(folder / kind)


def _remove_stale_locks(folder: Path) -> None:
    """Delete the lock files that killed processes left."""
    for path in _list_files(folder):
        with suppress(OSError):
            old = time.time() - path.lstat().st_mtime > _STALE_LOCK_SECONDS
            if old and path.name.startswith(".") and path.name.endswith(".lock"):
                path.unlink()


def _acquire_lock(path: Path) -> int | None:
    """Return an open, locked file; None if locks are unsupported or the wait timed out."""
    deadline = time.monotonic() + _LOCK_TIMEOUT
    while time.monotonic() < deadline:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file).st_ino == os.stat(path).st_ino:
                return file
        except BlockingIOError:
            time.sleep(_LOCK_POLL_SECONDS)
        except FileNotFoundError:
            pass  # the previous holder deleted the file: retry with a new one
        except OSError:
            os.close(file)
            return None
        os.close(file)
    return None
