"""Fourier transforms of the other libraries, with two threads."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from magmath.bench.peers.service import Contestant

Transform = Callable[[], Any]
Prepare = Callable[[Any, tuple[int, ...]], Transform]


def signal(case: dict[str, Any]) -> Any:
    """The array of a case, the same for every system."""
    random = np.random.default_rng(1)
    values = random.standard_normal(case["shape"], np.float32)
    if case["dtype"].startswith("complex"):
        values = values + 1j * random.standard_normal(case["shape"], np.float32)
    return values.astype(case["dtype"])


def axes_of(case: dict[str, Any]) -> tuple[int, ...]:
    """The axes that are transformed: the last ones."""
    return tuple(range(-case["axes"], 0))


class FftContestant(Contestant):
    """Repeats a transform that `prepare` makes ready."""

    def __init__(self, versions: dict[str, str], prepare: Prepare) -> None:
        self._versions = versions
        self._prepare = prepare
        self._transform: Transform
        self._repeats = 0

    def versions(self) -> dict[str, str]:
        return self._versions

    def prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        self._transform = self._prepare(signal(case), axes_of(case))
        self._repeats = case["repeats"]
        start = time.perf_counter()
        self._transform()
        return {"first_seconds": time.perf_counter() - start}

    def round(self) -> float:
        start = time.perf_counter()
        for _ in range(self._repeats):
            self._transform()
        return time.perf_counter() - start

    def finish(self) -> dict[str, Any]:
        result = self._transform()
        return {"check": abs(complex(result[(1,) * result.ndim]))}


def torch_fft() -> Contestant:
    """torch with all threads, into a result that is there already."""
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))

    def prepare(values: Any, axes: tuple[int, ...]) -> Transform:
        x = torch.from_numpy(values)
        function = torch.fft.fftn if x.is_complex() else torch.fft.rfftn
        out = function(x, dim=axes)
        return lambda: function(x, dim=axes, out=out)

    return FftContestant({"torch": torch.__version__}, prepare)


def scipy_fft() -> Contestant:
    """SciPy with all threads."""
    import scipy
    import scipy.fft

    workers = len(os.sched_getaffinity(0))

    def prepare(values: Any, axes: tuple[int, ...]) -> Transform:
        function = scipy.fft.fftn if np.iscomplexobj(values) else scipy.fft.rfftn
        return lambda: function(values, axes=axes, workers=workers)

    return FftContestant({"scipy": scipy.__version__}, prepare)
