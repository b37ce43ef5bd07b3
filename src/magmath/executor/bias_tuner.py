"""Selects, by measurement, the fastest way to compute the gradients of weights and bias.

The pass `passes/fold_bias.py` asks for the layers of which the cost model predicts a gain. The
tuner (`kernels/dispatch/tuner.py`) measures the forms on operands of the same shape, and stores its
decision on disk; it keeps the default unless another form is clearly faster.
"""

from __future__ import annotations

from functools import cache, partial
from typing import final

import torch

from magmath.core.call_sequence import sequence
from magmath.core.type_aliases import BoundCall
from magmath.kernels.dispatch.tuner import wake_thread_pool
from magmath.kernels.gemm.gemm import bind_gemm, tuner_for
from magmath.kernels.realignment import bind_shift_right
from magmath.kernels.thread_count import torch_threads

MAX_EXTENT = 2048
"""Maximum extents of a measurement; beyond them the ratio of the times does not change."""
BUDGET_SECONDS = 50e-3


def fastest_gradients(
    rows: int, inputs: int, units: int, dtype: str, *, transposed: bool, threads: int
) -> str:
    """Return the fastest form for the gradients of a layer on one worker: "epilogue" (a product and
    a sum), "widened" or "realigned" (one product; `fold_bias.FORMS`).

    The layer maps (rows, inputs) to (rows, units); with `transposed` its weights, and so their
    gradients, are (units, inputs).
    """
    rows, inputs, units = (min(extent, MAX_EXTENT) for extent in (rows, inputs, units))
    order = "units first" if transposed else "inputs first"
    key = f"gradients of weights and bias {dtype} {rows}x{inputs}x{units} {order}"
    measured = partial(_Gradients, rows, inputs, units, getattr(torch, dtype), transposed)
    operands = cache(measured)
    forms = {
        "epilogue": lambda: operands().separate(),
        "widened": lambda: operands().widened(),
        "realigned": lambda: operands().realigned(),
    }
    with torch_threads(threads):
        return tuner_for(deterministic=False).choose(key, forms, budget=BUDGET_SECONDS)


@final
class _Gradients:
    """The operands of a measurement, and the bound calls on them."""

    def __init__(
        self, rows: int, inputs: int, units: int, dtype: torch.dtype, transposed: bool
    ) -> None:
        self._wide = torch.ones(rows, inputs + 1, dtype=dtype)
        self._x = torch.ones(rows, inputs, dtype=dtype)
        self._g = torch.ones(rows, units, dtype=dtype)
        self._transposed = transposed
        self._tuner = tuner_for(deterministic=False)

    def _product(self, x: torch.Tensor) -> BoundCall:
        a, b = (self._g, x) if self._transposed else (x, self._g)
        out = x.new_empty(a.shape[1], b.shape[1])
        return bind_gemm(out, a.T, b, tuner=self._tuner)

    def separate(self) -> BoundCall:
        """Return the product for the weights and the sum for the bias."""
        product, total = self._product(self._x), self._g.new_empty(self._g.shape[1])
        return sequence(wake_thread_pool(), product, lambda: torch.sum(self._g, 0, out=total))

    def widened(self) -> BoundCall:
        """Return the column of ones and the product for both."""
        return sequence(
            wake_thread_pool(), lambda: self._wide[:, 0].fill_(1.0), self._product(self._wide)
        )

    def realigned(self) -> BoundCall:
        """Return the realignment of the inputs and the product for both."""
        realign = bind_shift_right(self._wide.view(-1), *self._x.shape)
        return sequence(wake_thread_pool(), realign, self._product(self._wide))
