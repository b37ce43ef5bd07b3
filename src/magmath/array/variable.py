"""Variables: named arrays that optimizers change."""

from __future__ import annotations

from typing import Any

import numpy as np

from magmath.array.array import Array, copy_of, laid
from magmath.array.data import Cell, Data, data_of
from magmath.array.reuse import is_own
from magmath.errors import ShapeError
from magmath.ops import elementwise as e
from magmath.ops import leaves


class Variable(Array):
    """A named array that optimizers change; expressions of it use its value when they run."""

    __slots__ = ("_cell",)

    def __init__(self, name: str, data: Data) -> None:
        self._cell = Cell(name, data)
        super().__init__(leaves.variable_leaf(data.shape, data.dtype, data.layout, self._cell))

    @property
    def name(self) -> str:
        """The name it was given."""
        return self._cell.name

    @property
    def cell(self) -> Cell:
        """Where the current value is kept."""
        return self._cell

    def set(self, value: Any) -> None:
        """Give it another value, of the same shape; the type is converted."""
        from magmath.array.creation import asarray

        shape = tuple(np.shape(value)) if not hasattr(value, "shape") else tuple(value.shape)
        if shape != self.shape:
            raise ShapeError(f"set: variable {self.name} has shape {self.shape}, not {shape}")
        array = asarray(value, dtype=self.dtype, layout=self.node.layout)
        self._cell.set(data_of(copy_of(array, self.node.layout).evaluated()))

    def _updated(self, result: Array) -> Array:
        if is_own(result) and result.shape == self.shape:  # its value need not be copied
            made = Array(e.astype(result.node, self.dtype))
            self._cell.set(data_of(laid(made, self.node.layout).evaluated()))
        else:
            self.set(result)
        return self
