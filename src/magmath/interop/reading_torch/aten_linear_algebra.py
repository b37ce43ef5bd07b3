"""PyTorch's linear algebra, distances, complex numbers and Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import magmath as mm
from magmath.interop.reading_torch.aten_types import Operator, as_float, of_floats, promoted


def _solved(a: mm.Array, b: mm.Array, *, left: bool = True) -> mm.Array:
    """Return X of A X = B, or of X A = B."""
    a, b = promoted(a, b)
    if left:
        is_vector = b.ndim == 1 or b.shape == a.shape[:-1]
        return mm.linalg.solve(a, b[..., None])[..., 0] if is_vector else mm.linalg.solve(a, b)
    return mm.matrix_transpose(mm.linalg.solve(*map(mm.matrix_transpose, (a, b))))


def _svd(x: mm.Array, full_matrices: bool = True, *, driver: str | None = None) -> Any:
    return tuple(mm.linalg.svd(x, full_matrices=full_matrices))


_DISTANCE_MODES = (
    "use_mm_for_euclid_dist_if_necessary",
    "use_mm_for_euclid_dist",
    "donot_use_mm_for_euclid_dist",
)
"""The modes of `cdist` by PyTorch's numbers."""


def _distances(
    x: mm.Array, y: mm.Array, p: float = 2.0, compute_mode: int | None = None
) -> mm.Array:
    return mm.cdist(x, y, p, _DISTANCE_MODES[compute_mode or 0])


def _pairwise_distance(
    x: mm.Array, y: mm.Array, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> mm.Array:
    x, y = promoted(x, y)
    return mm.linalg.vector_norm(as_float(x - y) + eps, axis=-1, ord=p, keepdims=keepdim)


def _parts_of_complex(x: mm.Array) -> mm.Array:
    return mm.stack([mm.real(x), mm.imag(x)], axis=-1)


LINEAR_ALGEBRA: dict[str, Operator] = {
    "linalg_inv": mm.linalg.inv,
    "linalg_cholesky": mm.linalg.cholesky,
    "linalg_det": mm.linalg.det,
    "linalg_slogdet": lambda x: tuple(mm.linalg.slogdet(x)),
    "linalg_eigh": lambda x, uplo="L": tuple(mm.linalg.eigh(x, uplo)),
    "linalg_eigvalsh": lambda x, uplo="L": mm.linalg.eigvalsh(x, uplo),
    "linalg_svd": _svd,
    "linalg_svdvals": lambda x, *, driver=None: mm.linalg.svdvals(x),
    "linalg_solve": _solved,
    "linalg_qr": lambda x, mode="reduced": tuple(mm.linalg.qr(x, mode=mode)),
    "linalg_cross": lambda x, y, *, dim=-1: mm.linalg.cross(x, y, axis=dim),
    "cdist": _distances,
    "pairwise_distance": _pairwise_distance,
    "view_as_real": _parts_of_complex,
    "real": mm.real,
    "imag": mm.imag,
}


def _transform(function: Callable[..., Any]) -> Operator:
    """Return a transform along one axis, or several."""
    return of_floats(lambda x, n=None, axis=-1, norm=None: function(x, n, axis, norm))


def _transform_of_axes(function: Callable[..., Any], default: Any) -> Operator:
    return of_floats(lambda x, s=None, axes=default, norm=None: function(x, s, axes, norm))


FOURIER: dict[str, Operator] = {
    f"fft_{name}": _transform(getattr(mm.fft, name))
    for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
} | {
    f"fft_{name}{suffix}": _transform_of_axes(getattr(mm.fft, f"{name}{suffix}"), axes)
    for name in ("fft", "ifft", "rfft", "irfft")
    for suffix, axes in (("2", (-2, -1)), ("n", None))
}
