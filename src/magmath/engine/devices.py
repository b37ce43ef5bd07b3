"""Devices, as the array API sees them: a pool computes on one kind, "cpu" or "cuda"."""

from __future__ import annotations

from magmath.engine import session
from magmath.errors import DeviceError


def current_device() -> str:
    """The kind of device that the workers of the current pool compute on."""
    return session.engine().pool.topology.device


def check_device(operation: str, device: object) -> None:
    """DeviceError unless `device` is None or the one that the pool computes on."""
    if device is None or str(device) == current_device():
        return
    raise DeviceError(
        f"{operation}: the pool computes on {current_device()!r}, not on {device!r}; its arrays "
        f"lie there; start another pool with mm.init(device={str(device)!r})"
    )
