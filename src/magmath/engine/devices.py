"""Devices, as the array API defines them: a pool computes on one kind, "cpu" or "cuda"."""

from __future__ import annotations

from magmath.engine import session
from magmath.errors import DeviceError


def current_device() -> str:
    """Return the device kind of the current pool's workers."""
    return session.engine().pool.topology.device


def check_device(operation: str, device: object) -> None:
    """Raise DeviceError unless `device` is None or the device of the pool."""
    if device is None or str(device) == current_device():
        return
    raise DeviceError(
        f"{operation}: the pool computes on {current_device()!r}, not on {device!r}; its arrays "
        f"are stored there; start another pool with mm.init(device={str(device)!r})"
    )
