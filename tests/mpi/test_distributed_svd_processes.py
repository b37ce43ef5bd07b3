"""Singular values and eigenvalues that worker processes compute collectively."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import magmath as mm
from engines import current
from magmath.engine import session
from magmath.layout import Layout
from matrices import adjoint, bound, check_orthonormal, check_zero, normal


def test_vectors_are_computed_collectively() -> None:
    x = normal((90, 80), "complex128")
    square = x[:80] + adjoint(x[:80])
    with current("processes", 2):
        engine = session.engine()
        engine.environment = replace(engine.environment, max_moved_bytes=0, lapack_memory=0)
        u, s, vh = mm.linalg.svd(mm.asarray(x, layout=Layout.split(0)), full_matrices=False)
        values, vectors = mm.linalg.eigh(mm.asarray(square, layout=Layout.split(1)))
        for result in (s, values):
            assert " collectively in " in str(result.explain())
        check_zero(np.asarray(u) * np.asarray(s) @ np.asarray(vh) - x, bound(x), "svd")
        v = np.asarray(vectors)
        check_orthonormal(v, "eigenvectors")
        check_zero(square @ v - v * np.asarray(values), bound(square), "eigh")
