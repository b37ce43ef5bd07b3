"""A nonlinear heat equation on a torus by Fourier transforms in each step."""

from __future__ import annotations

from typing import Any

import numpy

SIZES = (112, 1120, 7056)
"""Points along each side."""
STEPS = 10
JAX = True


def data(n: int) -> tuple[Any, ...]:
    """Return temperatures of shape (n, n)."""
    return (numpy.random.default_rng(1).random((n, n)),)


def main(np: Any, u: Any) -> Any:
    """Return the temperatures after the steps, diffusion exact and reaction explicit."""
    n, dt = u.shape[0], 1e-3
    k = 2 * np.pi * np.fft.fftfreq(n, 1 / n)
    decay = np.exp(-1e-3 * dt * (k[:, None] ** 2 + k[None, :] ** 2))
    for _ in range(STEPS):
        u = u + dt * u * (1 - u)
        u = np.real(np.fft.ifft2(decay * np.fft.fft2(u)))
    return u


def with_scipy(np: Any, u: Any) -> Any:
    """Return the same by SciPy's transforms of real numbers on all processors."""
    import os

    from scipy import fft

    n, dt, processors = u.shape[0], 1e-3, len(os.sched_getaffinity(0))
    k, half = 2 * np.pi * fft.fftfreq(n, 1 / n), 2 * np.pi * fft.rfftfreq(n, 1 / n)
    decay = np.exp(-1e-3 * dt * (k[:, None] ** 2 + half[None, :] ** 2))
    for _ in range(STEPS):
        u = u + dt * u * (1 - u)
        u = fft.irfft2(decay * fft.rfft2(u, workers=processors), s=u.shape, workers=processors)
    return u
