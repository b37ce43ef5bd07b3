"""`magmath cache`: the folder of compiled code and measurements, its size and bound; `--clear`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from magmath.core import cache_dir
from magmath.core import disk_cache as store
from magmath.core.json_text import json_text
from magmath.core.options import CACHE
from magmath.errors import OptionError


def cache(
    *,
    clear: Annotated[bool, Parameter(negative=())] = False,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Show the folder that stores compiled code and measurements, its size and its bound.

    MAGMATH_CACHE names the folder, MAGMATH_CACHE_LIMIT its maximum size in megabytes.

    For example:

        magmath cache

        magmath cache --json

        magmath cache --clear

    Parameters
    ----------
    clear
        Delete all entries. Running programs continue; later ones compile again.
    json
        Print one JSON object.
    """
    deleted = _clear() if clear else 0
    described = describe_cache() | ({"deleted": deleted} if clear else {})
    if json:
        print(json_text(described))
        return
    console = Console(soft_wrap=True, highlight=False)
    if clear:
        console.print(f"deleted {deleted} entries")
    console.print(f"folder   {described['folder']}", markup=False)
    console.print(f"entries  {described['entries']}")
    for kind, part in described["kinds"].items():
        console.print(f"  {kind:6} {part['entries']} ({part['bytes'] / 1e6:.1f} MB)")
    console.print(
        f"size     {described['bytes'] / 1e6:.1f} MB of at most {described['limit'] / 1e6:.0f} MB"
    )
    if described["problem"]:
        console.print(f"problem  {described['problem']}", markup=False)


def describe_cache() -> dict[str, Any]:
    """Return the output of the command as plain data; sizes in bytes."""
    configured = cache_dir.configured_folder()
    entries = [] if configured.path is None else store.list_entries(configured.path)
    kinds = {kind: [e for e in entries if e.path.parent.name == kind] for kind in store.KINDS}
    return {
        "folder": None if configured.path is None else str(configured.path),
        "entries": len(entries),
        "bytes": sum(entry.nbytes for entry in entries),
        "limit": store.limit_bytes(),
        "kinds": {
            kind: {"entries": len(part), "bytes": sum(entry.nbytes for entry in part)}
            for kind, part in kinds.items()
        },
        "problem": configured.problem or _problem(configured.path),
    }


def _problem(folder: Path | None) -> str:
    """Return why the folder is unusable; empty if it is usable or will be created."""
    if folder is None or not os.path.lexists(folder):
        return ""
    if not folder.is_dir():
        return f"{folder} is no folder"
    return "" if os.access(folder, os.W_OK | os.X_OK) else f"{folder} cannot be written to"


def _clear() -> int:
    """Delete all entries; return their number."""
    configured = cache_dir.configured_folder()
    if configured.path is None:
        raise OptionError(
            f"cache: there is no folder to clear: {configured.problem}; set {CACHE} to the folder"
        )
    entries = store.list_entries(configured.path)
    try:
        store.clear(configured.path)
    except OSError as error:
        raise OptionError(
            f"cache: an entry cannot be deleted: {error}; run the command as the user that owns "
            f"the folder"
        ) from error
    return len(entries)
