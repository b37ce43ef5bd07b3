"""Filters in the order or transform of a kernel, kept as long as their values are the same.

The filters of an inference program are frozen (`passes/freeze_filters.py`): a number, their content
id, is the same in two calls only if the values are. It is that of the whole array; a problem says
which tile of it is at an address, since tiles are moved to memory that others use too. A kernel
converts them once for each content id. Training programs pass no content ids.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, TypeAlias, final
from weakref import WeakValueDictionary

import torch

from magmath.kernels.conv.convolution_problem import ConvolutionProblem


@final
class FrozenFilters:
    """The converted filters of one content id."""

    __slots__ = ("__weakref__", "_content_id", "tensor")

    def __init__(self) -> None:
        self._content_id: int | None = None
        self.tensor: torch.Tensor | None = None

    def update(self, content_id: torch.Tensor, convert: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Return the filters of this content id; `convert` returns them if they are not stored."""
        current = int(content_id.item())
        if self._content_id != current or self.tensor is None:
            self._content_id = None  # until the conversion has succeeded
            self.tensor = convert()
            self._content_id = current
        return self.tensor


_Key: TypeAlias = tuple[int, Hashable, Hashable]

_by_memory: Final[WeakValueDictionary[_Key, FrozenFilters]] = WeakValueDictionary()
"""By address, tile and form; the bindings of a program to different images share an entry."""


def frozen_filters(problem: ConvolutionProblem, form: Hashable) -> FrozenFilters:
    """Return the converted filters of a problem; `form` says how they are converted. All problems
    with one tile at one address share those of a form as long as one refers to them."""
    key = (problem.w.data_ptr(), problem.w_tile, form)
    return _by_memory.setdefault(key, FrozenFilters())
