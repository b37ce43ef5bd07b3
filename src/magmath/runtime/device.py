"""The host name, and the choice of the device of this process."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Final

import torch

from magmath.errors import DeviceError

HOST: Final = socket.gethostname()


def choose_device(name: str) -> torch.device:
    """Return the device of this process: "auto" is a GPU if there is one, each worker its own.

    Raises DeviceError if the machine has no such device.
    """
    check_device_name(name)
    gpus = torch.cuda.device_count() if name != "cpu" else 0
    if name == "cpu" or (name == "auto" and not gpus):
        return torch.device("cpu")
    device = torch.device("cuda" if name == "auto" else name)
    index = _local_rank() % max(gpus, 1) if device.index is None else device.index
    if index >= gpus:
        raise DeviceError(
            f"device {name!r} was requested, this machine ({HOST}) has "
            f'{gpus or "no"} CUDA device{"" if gpus == 1 else "s"}; use device="cpu"'
        )
    return torch.device("cuda", index)


def check_device_name(name: object) -> None:
    """Raise DeviceError unless `name` names a device, which this machine may lack."""
    if isinstance(name, str):
        if name in ("auto", "cpu"):
            return
        with suppress(RuntimeError):
            if torch.device(name).type == "cuda":
                return
    raise DeviceError(f'init: device must be "auto", "cpu" or "cuda", was given {name!r}')


def can_be_gpu(name: str) -> bool:
    """Return True if workers with this name of a device compute on GPUs of this machine."""
    return name != "cpu" and torch.cuda.device_count() > 0


def _local_rank() -> int:
    """Return the rank of this process on its host, from the launcher's variables."""
    for variable in ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"):
        if variable in os.environ:
            return int(os.environ[variable])
    return 0
