"""The folder of the cache: `$MAGMATH_CACHE`, `$XDG_CACHE_HOME/magmath`, or `~/.cache/magmath`.

If that folder cannot be created or written, a private temporary folder replaces it, after one
warning. The environment of this process names the temporary folder, so child processes share it.
The process that created it removes it at exit. Entries in the configured folder are still read.
"""

from __future__ import annotations

import atexit
import errno
import json
import os
import pwd
import tempfile
import time
import warnings
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, final

from magmath.core.module_locks import module_lock
from magmath.core.options import CACHE
from magmath.core.private_folder import private_folder, remove_abandoned

FALLBACK_VARIABLE: Final = "MAGMATH_CACHE_FALLBACK"
"""Environment variable that names the temporary folder and the folder that it replaces, as JSON."""
PREFIX: Final = "magmath-cache-"
_PROBE_BYTES: Final = 1 << 16
TRANSIENT_ERRORS: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN}
)
"""Errors that are caused by the state of this process, not by a file or a folder."""

_lock = module_lock(__name__, "_lock")
_unwritable: set[str] = set()
"""Configured folders that are not writable and have no temporary replacement."""


@final
@dataclass(frozen=True)
class ConfiguredFolder:
    """The folder that the environment names: a path, or the reason why there is none."""

    path: Path | None
    problem: str = ""

    @property
    def name(self) -> str:
        """The path, or an empty string."""
        return "" if self.path is None else str(self.path)


def configured_folder() -> ConfiguredFolder:
    """Return the folder that the environment names, without creating or testing it."""
    if setting := CACHE.read():
        return _absolute(setting)
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):  # the standard ignores others
        return ConfiguredFolder(Path(base, "magmath"))
    home = _home()
    if home is None:
        return ConfiguredFolder(None, f"HOME is not set and {_unknown_user()}")
    return ConfiguredFolder(Path(home, ".cache", "magmath"))


def readable_folders() -> list[Path]:
    """Return the folders to read entries from; entries are written to the first one if possible."""
    configured = configured_folder()
    folders = [] if configured.path is None else [configured.path]
    fallback = _fallback_of(configured)
    if fallback is not None:
        return [fallback, *folders]
    if configured.name in _unwritable:
        return folders
    problem = configured.problem or _create_folder(folders[0])
    if problem:
        fallback = _create_fallback(configured, problem)
        return folders if fallback is None else [fallback, *folders]
    return folders


def writable_folder() -> Path | None:
    """Return the folder to write entries to; None if no folder is writable."""
    folders = readable_folders()
    return None if not folders or configured_folder().name in _unwritable else folders[0]


def mark_unwritable(folder: Path, error: OSError) -> None:
    """Stop writing to `folder` after an error. A temporary folder replaces the configured one, with
    a warning; nothing replaces the temporary one."""
    configured = configured_folder()
    if error.errno in TRANSIENT_ERRORS or configured.name in _unwritable:
        return
    if folder == configured.path:
        _create_fallback(configured, _reason(folder, error))
    else:
        _unwritable.add(configured.name)


def child_environment() -> dict[str, str]:
    """Return the environment variables by which child processes find the cache of this process.

    Tests first whether the folder is writable, so that the children share one temporary folder
    instead of creating one each.
    """
    folder = writable_folder()
    if folder is not None:
        try:
            with tempfile.NamedTemporaryFile(dir=folder, prefix=".probe-") as probe:
                probe.write(bytes(_PROBE_BYTES))
                probe.flush()
        except OSError as error:
            mark_unwritable(folder, error)
    variables = {name: os.environ[name] for name in (FALLBACK_VARIABLE,) if name in os.environ}
    if CACHE.read() and configured_folder().path is not None:
        # An absolute path: children may start in another directory.
        variables[CACHE.name] = configured_folder().name
    return variables


def remove_abandoned_fallbacks(patience: float) -> None:
    """Remove the temporary folders of killed processes.

    A killed process closes its connections before it releases the lock of its folder, or after.
    This waits at most `patience` seconds for the lock of the folder that this process has used.
    """
    if FALLBACK_VARIABLE not in os.environ:
        return
    deadline = time.monotonic() + patience
    with suppress(OSError):
        remove_abandoned(tempfile.gettempdir(), f"{PREFIX}*")
        while _fallback_of(configured_folder()) is not None and time.monotonic() < deadline:
            time.sleep(0.02)
            remove_abandoned(tempfile.gettempdir(), f"{PREFIX}*")


def _create_folder(folder: Path) -> str:
    """Create a folder if it is missing; return why it is unusable, or an empty string."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
            return ""
        error = OSError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as raised:
        error = raised
    return _reason(folder, error)


def _reason(folder: Path, error: OSError) -> str:
    return f"{folder} cannot be used ({error.strerror or error})"


def _fallback_of(configured: ConfiguredFolder) -> Path | None:
    """Return the temporary folder that replaces the configured one; None if there is none."""
    try:
        path, instead_of = json.loads(os.environ.get(FALLBACK_VARIABLE, ""))
        status = os.stat(path)
    except (ValueError, TypeError, OSError):
        return None
    is_private = status.st_uid == os.geteuid() and not status.st_mode & 0o077
    return Path(path) if is_private and instead_of == configured.name else None


def _create_fallback(configured: ConfiguredFolder, problem: str) -> Path | None:
    """Create the temporary folder and warn. Returns None if the system has no space for it."""
    with _lock:
        existing = _fallback_of(configured)
        if existing is not None or configured.name in _unwritable:
            return existing
        folder: Path | None = None
        with suppress(OSError):
            stack = ExitStack()
            folder = stack.enter_context(private_folder(tempfile.gettempdir(), PREFIX))
            atexit.register(_remove, stack, configured)
            os.environ[FALLBACK_VARIABLE] = json.dumps([str(folder), configured.name])
        if folder is None:
            _unwritable.add(configured.name)
    where = "nothing is kept" if folder is None else f"{folder} is used, and removed at the exit"
    warnings.warn(
        f"the cache of compiled code and measurements: {problem}; {where}; set "
        f"{CACHE} to a folder that can be written to",
        RuntimeWarning,
        stacklevel=2,
    )
    return folder


def _remove(stack: ExitStack, configured: ConfiguredFolder) -> None:
    """Remove the temporary folder when the process that created it exits."""
    _unwritable.add(configured.name)  # code that runs later must not create another one
    stack.close()


def _absolute(setting: str) -> ConfiguredFolder:
    """Return the folder that $MAGMATH_CACHE names, as an absolute path."""
    path = setting
    if setting.startswith("~"):
        home = (
            _home() if setting == "~" or setting.startswith("~/") else os.path.expanduser(setting)
        )
        if home is None or home.startswith("~"):
            problem = f"{CACHE} is {setting}, HOME is not set, and {_unknown_user()}"
            return ConfiguredFolder(None, problem)
        path = home + setting[1:] if setting.startswith("~/") else home
    try:
        return ConfiguredFolder(Path(_first_absolute(path)))
    except OSError as error:  # the working directory is gone
        return ConfiguredFolder(
            None, f"{CACHE} is {setting}, and there is no such folder ({error})"
        )


@cache
def _first_absolute(path: str) -> str:
    """Return the absolute path at the first call; later changes of directory have no effect."""
    return os.path.abspath(path)


def _home() -> str | None:
    home = os.environ.get("HOME", "")
    if not os.path.isabs(home):
        try:
            home = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            return None
    return home if os.path.isabs(home) else None


def _unknown_user() -> str:
    return f"user {os.getuid()} has no entry in the password database"
