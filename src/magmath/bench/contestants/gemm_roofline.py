"""The GEMM roofline: only the GEMMs of the training step, each by the fastest library for its
shape.

It is the time of a step in which everything except the matrix products is free, with the same
libraries and settings as magmath.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any, final

import numpy as np
import scipy.linalg.blas as scipy_blas
import torch
from threadpoolctl import threadpool_limits

from magmath.bench.peers.problem import Problem
from magmath.bench.peers.service import Contestant
from magmath.core.resources import processor_count
from magmath.core.type_aliases import BoundCall

TRIALS = 7
PAUSE_SECONDS = 0.05


def gemms() -> Contestant:
    """Return the contestant of the bare matrix products of the MLP's step."""
    return GemmContestant()


@final
class GemmContestant(Contestant):
    """Forward Y = X·W, then dW = Xᵀ·dY and dX = dY·Wᵀ, on operands of its own for every layer."""

    def __init__(self) -> None:
        torch.set_num_threads(processor_count())
        self._limits = threadpool_limits(processor_count(), "blas")
        self._problem: Problem
        self._calls: list[BoundCall] = []

    def versions(self) -> dict[str, str]:
        return {"torch": torch.__version__, "numpy": np.__version__}

    def prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        self._problem = Problem.of(case)
        products = _products(self._problem)
        mixed = [fastest(candidates) for candidates in products]
        steps = {name: [product[name] for product in products] for name in products[0]}
        # Thread pools of several libraries interfere: one library for all may be faster.
        steps["each its fastest"] = [
            product[name] for product, name in zip(products, mixed, strict=True)
        ]
        chosen = fastest({name: partial(_run, calls) for name, calls in steps.items()})
        self._calls = steps[chosen]
        seconds = self.round()
        flops = self._problem.flops_per_epoch * self._problem.epochs
        return {"variant": chosen, "products": Counter(mixed), "gflops": flops / seconds / 1e9}

    def round(self) -> float:
        start = time.perf_counter()
        for _ in range(self._problem.steps * self._problem.epochs):
            _run(self._calls)
        return time.perf_counter() - start

    def finish(self) -> dict[str, Any]:
        return {}


def _products(problem: Problem) -> list[dict[str, BoundCall]]:
    """Return the step's products in order, each as {library: call}."""
    forward, backward = [], []
    batch = problem.batch
    for layer, (inputs, outputs) in enumerate(pairwise(problem.sizes)):
        x, w = _matrix(batch, inputs), _matrix(inputs, outputs)
        dy, dw, dx = _matrix(batch, outputs), _matrix(inputs, outputs), _matrix(batch, inputs)
        forward.append(_candidates(x, w, _matrix(batch, outputs)))
        backward.append(_candidates(x.T, dy, dw))
        if layer:
            backward.append(_candidates(dy, w.T, dx))
    return forward + backward[::-1]


def _matrix(rows: int, columns: int) -> torch.Tensor:
    return torch.rand(rows, columns)


def _candidates(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> dict[str, BoundCall]:
    """Return calls that compute C = A·B into row-major C, by library; A or B may be transposed."""
    a_np, b_np, c_np = a.numpy(), b.numpy(), c.numpy()
    # BLAS sees a row-major matrix as its transpose: Cᵀ = Bᵀ·Aᵀ.
    (left, left_turned), (right, right_turned) = _as_column_major(b_np.T), _as_column_major(a_np.T)
    calls: dict[str, BoundCall] = {
        "torch": lambda: torch.mm(a, b, out=c),
        "NumPy": lambda: np.matmul(a_np, b_np, out=c_np),
        "SciPy": lambda: scipy_blas.sgemm(
            1.0,
            left,
            right,
            c=c_np.T,
            trans_a=left_turned,
            trans_b=right_turned,
            overwrite_c=True,
        ),
    }
    if torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        onednn = torch.ops.mkldnn._linear_pointwise
        calls["oneDNN"] = lambda: onednn(a, b.T, None, "none", [], "")
    return calls


def _as_column_major(matrix: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], bool]:
    """Return the matrix or its transpose in column-major order, and whether it is transposed."""
    return (matrix, False) if matrix.flags.f_contiguous else (matrix.T, True)


def _run(calls: list[BoundCall]) -> None:
    for call in calls:
        call()


def fastest(candidates: Mapping[str, BoundCall]) -> str:
    """Return the candidate with the smallest median time, measured separately."""
    return min(candidates, key=lambda name: _seconds(candidates[name]))


def _seconds(call: BoundCall) -> float:
    time.sleep(PAUSE_SECONDS)  # until idle threads of other libraries sleep
    call()
    seconds = []
    for _ in range(TRIALS):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return median(seconds)
