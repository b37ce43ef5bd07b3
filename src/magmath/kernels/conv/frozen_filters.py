"""Filters in the order or transform of a kernel, kept as long as their values are the same.

The filters of an inference program are frozen (`passes/freeze_filters.py`): a number, their
version, is the same in two calls only if the values are. A kernel converts them once for each
version. Training programs have no versions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, final
from weakref import WeakValueDictionary

import torch


@final
class FrozenFilters:
    """The converted filters of one version."""

    __slots__ = ("__weakref__", "_version", "tensor")

    def __init__(self) -> None:
        self._version: int | None = None
        self.tensor: torch.Tensor | None = None

    def update(self, version: torch.Tensor, convert: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Return the filters of this version; `convert` returns them if they are not stored."""
        current = int(version.item())
        if self._version != current or self.tensor is None:
            self._version = None  # until the conversion has succeeded
            self.tensor = convert()
            self._version = current
        return self.tensor


_by_memory: Final[WeakValueDictionary[tuple[int, Hashable], FrozenFilters]] = WeakValueDictionary()
"""By address and form; the bindings of a program to different images share an entry."""


def frozen_filters(w: torch.Tensor, form: Hashable) -> FrozenFilters:
    """Return the converted filters of the memory of `w`; `form` says how they are converted. All
    callers with equal arguments share them as long as one refers to them."""
    return _by_memory.setdefault((w.data_ptr(), form), FrozenFilters())
