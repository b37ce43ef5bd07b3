"""`magmath info`: the machine and the libraries as magmath detects them.

Its output belongs in a bug report, and is the first check for failures and slow programs.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, final

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

import magmath
from magmath.bench import host_info
from magmath.cli.cache import describe_cache
from magmath.core import cgroup
from magmath.core.cpu import cpu_name
from magmath.core.json_text import json_text
from magmath.core.resources import memory_share

LIBRARIES = ("torch", "numpy", "scipy", "llvmlite", "mpi4py", "mpich", "pyzmq", "msgspec")
# Runs in a separate process: loading an MPI library here could initialize it in this one.
_MPI_QUERY = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; \
print(MPI.Get_library_version(), end='')"

Section = dict[str, Any]


@final
class Bytes(int):
    """A size in bytes: a plain number in JSON, with a unit in tables."""


def info(
    *,
    tuner: Annotated[bool, Parameter(negative=())] = False,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Show versions, processors, devices, BLAS and MPI libraries, threads, memory and caches.

    For example:

        magmath info

        magmath info --json > machine.json

        magmath info --tuner

    Parameters
    ----------
    tuner
        Show the measured times of the kernel candidates of each operation on this machine.
    json
        Print one JSON object instead of tables.
    """
    sections: dict[str, Any] = {"tuner": tuner_timings()} if tuner else collect()
    if json:
        print(json_text(sections))
        return
    console = Console()
    if tuner:
        console.print(_timings_table(sections["tuner"]))
        return
    for title, section in sections.items():
        table = Table(title=title, title_justify="left", show_header=False, box=None)
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        for name, value in section.items():
            table.add_row(name, _text(value))
        console.print(table)


def collect() -> dict[str, Section]:
    """Return the output of `info` as plain data; sizes in bytes."""
    return {
        "versions": _versions(),
        "machine": host_info.describe() | _memory(),
        "devices": _devices(),
        "BLAS and threads": _threads(),
        "environment": dict(host_info.tuning_variables()),
        "MPI": _mpi(),
        "caches": _caches(),
    }


def tuner_timings() -> list[Section]:
    """Return the tuner's decisions on this machine: for each operation, shape and number of
    threads, the seconds of every candidate, the default one first, and the chosen one."""
    from magmath.kernels.dispatch.tuner import tuner_for

    return [
        {
            "operation": timing.operation,
            "threads": timing.threads,
            "chosen": timing.chosen,
            "seconds": dict(timing.seconds),
        }
        for timing in sorted(tuner_for(deterministic=False).table(), key=lambda t: t.key)
        if timing.threads is not None
    ]


def _timings_table(decisions: list[Section]) -> Table:
    table = Table("operation", "threads", "chosen", "µs a call", box=None)
    for decision in decisions:
        seconds = decision["seconds"].items()
        table.add_row(
            decision["operation"],
            str(decision["threads"]),
            decision["chosen"],
            ", ".join(f"{name} {value * 1e6:.4g}" for name, value in seconds),
        )
    return table


def _versions() -> Section:
    versions = {"magmath": magmath.__version__, "python": sys.version.split()[0]}
    return versions | {name: host_info.package_version(name) for name in LIBRARIES}


def _memory() -> Section:
    host = host_info.memory()
    return {
        "memory": Bytes(host["total"]),
        "memory available": Bytes(host["available"]) if "available" in host else None,
        "memory of control groups": _bytes(cgroup.memory_limit()),
        "memory for arrays": Bytes(memory_share(1)),
        "quota of processors": cgroup.cpu_quota() or "none",
    }


def _bytes(limit: int | None) -> Bytes | str:
    return "no limit" if limit is None else Bytes(limit)


def _devices() -> Section:
    """Return the processor and the GPUs."""
    import torch

    devices: Section = {"cpu": f"{cpu_name()}, {torch.backends.cpu.get_cpu_capability()}"}
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        devices[f"cuda:{index}"] = {
            "name": properties.name,
            "memory": Bytes(properties.total_memory),
            "capability": f"{properties.major}.{properties.minor}",
        }
    if not torch.cuda.is_available():
        devices["cuda"] = "none"
    return devices


def _threads() -> Section:
    """Return the libraries of linear algebra with their versions and threads."""
    import numpy  # noqa: F401  (its BLAS is reported)
    import torch
    from threadpoolctl import threadpool_info

    from magmath.kernels.scipy_openblas import load_blas_of_scipy
    from magmath.kernels.thread_count import processor_limit, set_threads, shorten_waits

    load_blas_of_scipy()
    if limit := processor_limit():  # as in a pool in this process
        set_threads(limit)
    shorten_waits()
    names = {"numpy.libs": "NumPy", "scipy.libs": "SciPy", "torch": "torch"}
    libraries: Section = {
        "torch": {
            "MKL": torch.backends.mkl.is_available(),  # type: ignore[no-untyped-call]
            "oneDNN": torch.backends.mkldnn.is_available(),  # type: ignore[no-untyped-call]
            "threads": torch.get_num_threads(),
        }
    }
    for library in threadpool_info():
        owner = next((name for part, name in names.items() if part in library["filepath"]), "")
        libraries[f"{library['internal_api']} {owner}".strip()] = {
            "version": library["version"],
            "core type": library.get("architecture"),
            "threads": library["num_threads"],
            "file": library["filepath"],
        }
    return libraries


def _mpi() -> Section:
    """Return the MPI library, which another process loads, and its launcher."""
    neighbour = Path(sys.executable).with_name("mpiexec")
    launcher = str(neighbour) if neighbour.is_file() else shutil.which("mpiexec")
    try:
        answer = subprocess.run(
            [sys.executable, "-c", _MPI_QUERY], capture_output=True, text=True, timeout=60
        )
    except subprocess.TimeoutExpired:
        return {"library": "did not answer within 60 s", "mpiexec": launcher}
    if answer.returncode:
        return {"library": "cannot be loaded: " + _last_line(answer.stderr), "mpiexec": launcher}
    return {"library": " ".join(answer.stdout.split("\n")[0].split()), "mpiexec": launcher}


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "no message")


def _caches() -> Section:
    cache = describe_cache()
    return {"folder": cache["folder"]} | {k: Bytes(n["bytes"]) for k, n in cache["kinds"].items()}


def _text(value: Any) -> str:
    """Return a value for a table."""
    if isinstance(value, dict):
        shown = {name: part for name, part in value.items() if part is not None and name != "file"}
        return ", ".join(f"{name} {_text(part)}" for name, part in shown.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Bytes):
        return f"{value / 2**30:.1f} GiB" if value >= 2**30 else f"{value / 2**20:.2f} MiB"
    return "not found" if value is None else str(value)
