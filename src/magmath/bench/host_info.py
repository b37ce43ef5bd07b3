"""The machine and the source revision, for result files and `magmath info`.

Standard library only, so that it imports no framework.
"""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

from magmath.core.cpu import cpu_name
from magmath.core.resources import processor_count

MEMORY_FILE = Path("/proc/meminfo")
TUNING_PREFIXES = (
    "OPENBLAS_",
    "MKL_",
    "OMP_",
    "GOMP_",
    "KMP_",
    "DNNL_",
    "ONEDNN_",
    "XLA_",
    "TF_ENABLE_",
)


def describe(device: str = "cpu") -> dict[str, str | int]:
    """Return processor, usable cores, memory in bytes, operating system and Python version; the
    name of the first GPU too for the device "cuda"."""
    gpu: dict[str, str | int] = {}
    if device == "cuda":
        import torch

        gpu["gpu"] = torch.cuda.get_device_name(0)
    return {
        "cpu": cpu_name(),
        "cores": processor_count(),
        "memory": memory()["total"],
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        **gpu,
    }


def memory() -> dict[str, int]:
    """Return the main memory in bytes: `total`, and `available` if the system reports it."""
    fields = _fields(MEMORY_FILE)
    if "MemTotal" in fields:
        names = {"total": "MemTotal", "available": "MemAvailable"}
        return {key: int(fields[name].split()[0]) * 1024 for key, name in names.items()}
    return {"total": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")}


def tuning_variables() -> dict[str, str]:
    """Return the environment variables that configure math libraries and so affect measurements."""
    return {k: v for k, v in sorted(os.environ.items()) if k.startswith(TUNING_PREFIXES)}


def package_version(package: str) -> str | None:
    """Return the installed version of `package`, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def source_commit() -> str | None:
    """Return the commit of this source, with "+" if it was modified; None outside a repository."""
    folder = str(Path(__file__).parent)
    revision = _git(folder, "rev-parse", "--short=12", "HEAD")
    if not revision:
        return None
    return revision + ("+" if _git(folder, "status", "--porcelain", "--", folder) else "")


def _git(folder: str, *arguments: str) -> str | None:
    try:
        result = subprocess.run(
            ["git", "-C", folder, *arguments], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() if result.returncode == 0 else None


def _fields(file: Path) -> dict[str, str]:
    """Return the first "name : value" of each name in a file of /proc; empty if it is missing."""
    if not file.is_file():
        return {}
    fields: dict[str, str] = {}
    for line in file.read_text(errors="replace").splitlines():
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip(), value.strip())
    return fields
