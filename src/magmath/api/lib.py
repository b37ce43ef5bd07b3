"""`mm.lib`: functions that NumPy's programs call as `np.lib.stride_tricks.sliding_window_view`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, final

from magmath.api.manipulation import broadcast_to
from magmath.api.sliding_windows import sliding_window_view
from magmath.core.foreign_names import MM_NAMES, hint, missing_attribute


@final
class _StrideTricks:
    """The functions of `np.lib.stride_tricks` that arrays without strides have."""

    sliding_window_view = staticmethod(sliding_window_view)
    broadcast_to = staticmethod(broadcast_to)

    if not TYPE_CHECKING:  # otherwise type checkers would accept any name

        def __getattr__(self, name: str) -> NoReturn:
            """Raise AttributeError; for `as_strided` it says what to write."""
            raise missing_attribute("'magmath.lib.stride_tricks'", name, hint(MM_NAMES, name))


stride_tricks = _StrideTricks()

__all__ = ["stride_tricks"]


def __dir__() -> list[str]:
    return __all__
