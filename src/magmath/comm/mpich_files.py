"""The start-up files of MPICH, which it removes in MPI_Finalize and a killed process would leave.

All ranks have opened them when MPI_Init has returned everywhere, so they can be removed then.
"""

from __future__ import annotations

import os
import re
import socket
import struct
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

_TOPOLOGY_FILE: Final = re.compile(r"/tmp/hydra_hwloc_xmlfile_\w+")
_SHARED_FILE: Final = re.compile(r"/dev/shm/mpich_shm_\w+$", re.MULTILINE)
_PMI_SOCKET: Final = "PMI_FD"
_PMI_SECONDS: Final = 2.0


def unlink_startup_files() -> None:
    """Unlink the files through which the ranks of this host have found each other, and the file in
    which the launcher describes the host. Call it after MPI_Init has returned on all ranks."""
    maps = Path("/proc/self/maps")
    names = set(_SHARED_FILE.findall(maps.read_text())) if maps.exists() else set()
    for name in (*names, *_topology_files()):
        Path(name).unlink(missing_ok=True)


def _topology_files() -> list[str]:
    """Return the name of the launcher's description of this host, by the PMI protocol; an empty
    list if the launcher has none, or another protocol."""
    number = os.environ.get(_PMI_SOCKET, "")
    if not number.isdecimal():
        return []
    with (
        suppress(OSError, KeyError),
        closing(socket.socket(fileno=os.dup(int(number)))) as launcher,
    ):
        space = _ask(launcher, "cmd=get_my_kvsname")["kvsname"]
        name = _ask(launcher, f"cmd=get kvsname={space} key=PMI_hwloc_xmlfile")["value"]
        return [name] if _TOPOLOGY_FILE.fullmatch(name) else []
    return []


def _ask(launcher: socket.socket, question: str) -> dict[str, str]:
    """Return the fields of the launcher's answer."""
    # A timeout of the socket would make the descriptor, which MPI uses too, non-blocking.
    launcher.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(_PMI_SECONDS))
    try:
        launcher.sendall(f"{question}\n".encode())
        answer = launcher.recv(4096).decode()
    finally:
        launcher.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(0.0))
    words = [word.partition("=") for word in answer.split()]
    return {key: value for key, _, value in words}


def _timeval(seconds: float) -> bytes:
    """Return seconds as the system's struct timeval."""
    whole = int(seconds)
    return struct.pack("ll", whole, int((seconds - whole) * 1e6))
