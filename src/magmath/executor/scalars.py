"""The scalars of a program: numbers that differ between runs, such as a learning rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import final

import torch

from magmath.core.type_aliases import Number
from magmath.memory.torch_dtypes import NUMPY, from_torch, to_torch
from magmath.program.instructions import Program


@final
class Scalars:
    """A 0-d tensor for each scalar of a program, which its calls read.

    tensors   the tensors, by slot
    numbers   their values, in the order of `Program.scalars`; None before the first run
    """

    def __init__(self, program: Program, device: torch.device) -> None:
        self.tensors = {
            slot: torch.zeros((), dtype=to_torch(program.slots[slot].dtype), device=device)
            for slot in program.scalars
        }
        self.numbers: Sequence[object] = (None,) * len(program.scalars)
        self._writers = [_writer(tensor) for tensor in self.tensors.values()]

    def write(self, numbers: Sequence[Number]) -> None:
        """Write the numbers that have changed."""
        former = self.numbers
        self.numbers = (None,) * len(former)  # until all writes have succeeded
        for position, value in enumerate(numbers):
            if value is not former[position]:
                self._writers[position](value)
        self.numbers = numbers


def _writer(scalar: torch.Tensor) -> Callable[[Number], object]:
    """Return a function that writes a number into a 0-d tensor: NumPy's, if it has the type."""
    if scalar.device.type == "cpu" and from_torch(scalar.dtype) in NUMPY:
        return partial(scalar.numpy().__setitem__, ())
    return scalar.fill_
