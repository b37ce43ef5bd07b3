"""Factorizations that worker processes compute collectively."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath.engine import session
from magmath.errors import LinAlgError
from magmath.layout import Layout
from matrices import check_lu, check_qr, normal


@pytest.mark.parametrize("workers", [2, 3])
def test_processes_factorize_and_fail_collectively(workers: int) -> None:
    with current("processes", workers):
        engine = session.engine()
        engine.environment = replace(engine.environment, max_moved_bytes=0, lapack_memory=0)
        x = normal((150, 150), "float64")
        a = mm.asarray(x, layout=Layout.split(0))
        assert " collectively in " in str(mm.linalg.qr(a).Q.explain())
        check_lu(x, a)
        check_qr(x, a)
        definite = mm.asarray(x @ x.T + np.eye(150), layout=Layout.split(0))
        low = np.asarray(mm.linalg.cholesky(definite))
        np.testing.assert_allclose(low @ low.T, np.asarray(definite), atol=1e-10)
        solution = np.asarray(mm.linalg.solve(definite, a))
        np.testing.assert_allclose(np.asarray(definite) @ solution, x, atol=1e-7)
        with pytest.raises(LinAlgError, match="not positive definite"):
            np.asarray(mm.linalg.cholesky(a))
        with pytest.raises(LinAlgError, match="singular"):
            np.asarray(mm.linalg.inv(0 * a))
        assert float(mm.sum(mm.ones((3,)))) == 3.0
