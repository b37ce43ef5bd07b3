"""`mm.lib`: functions that NumPy's programs call as `np.lib.stride_tricks.sliding_window_view`."""

from __future__ import annotations

from types import SimpleNamespace

from magmath.api.manipulation import broadcast_to
from magmath.api.sliding_windows import sliding_window_view

stride_tricks = SimpleNamespace(
    sliding_window_view=sliding_window_view,
    broadcast_to=broadcast_to,
)

__all__ = ["stride_tricks"]


def __dir__() -> list[str]:
    return __all__
