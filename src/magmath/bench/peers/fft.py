"""Fourier transforms of the other libraries, with all threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from magmath.bench.peers.repeated import RepeatedContestant, Work, repeat_call
from magmath.bench.peers.service import Contestant, core_count


def signal(case: dict[str, Any]) -> Any:
    """Return the array of a case, the same for every system."""
    random = np.random.default_rng(1)
    values = random.standard_normal(case["shape"], np.float32)
    if case["dtype"].startswith("complex"):
        values = values + 1j * random.standard_normal(case["shape"], np.float32)
    return values.astype(case["dtype"])


def axes_of(case: dict[str, Any]) -> tuple[int, ...]:
    """Return the transformed axes: the last ones."""
    return tuple(range(-case["axes"], 0))


def check(case: dict[str, Any], result: Any) -> float:
    """Return a number that is compared between systems."""
    return abs(complex(result[(1,) * result.ndim]))


def torch_fft() -> Contestant:
    """Return torch's contestant, with all threads and a preallocated result."""
    import torch

    torch.set_num_threads(core_count())

    def prepare(case: dict[str, Any]) -> Work:
        x, axes = torch.from_numpy(signal(case)), axes_of(case)
        function = torch.fft.fftn if x.is_complex() else torch.fft.rfftn
        out = function(x, dim=axes)
        return repeat_call(lambda: function(x, dim=axes, out=out))

    return RepeatedContestant({"torch": torch.__version__}, prepare, check)


def scipy_fft() -> Contestant:
    """SciPy with all threads."""
    import scipy
    import scipy.fft

    workers = core_count()

    def prepare(case: dict[str, Any]) -> Work:
        values, axes = signal(case), axes_of(case)
        function = scipy.fft.fftn if np.iscomplexobj(values) else scipy.fft.rfftn
        return repeat_call(lambda: function(values, axes=axes, workers=workers))

    return RepeatedContestant({"scipy": scipy.__version__}, prepare, check)
