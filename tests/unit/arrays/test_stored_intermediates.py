"""Results that are read one after the other are computed once, if user code refers to what they
share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current

POOLS = [("inline", 1), ("shared", 2)]


def operations(read: Callable[[], Any]) -> Counter[str]:
    with mm.profile() as profile:
        read()
    return Counter(step.operation for step in profile.instructions)


@pytest.mark.parametrize(("kind", "workers"), POOLS)
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("name", ["eigh", "svd", "qr"])
def test_factorizations(name: str, backwards: bool, kind: str, workers: int) -> None:
    with current(kind, workers):
        a = np.random.default_rng(0).normal(size=(120, 120))
        x = mm.asarray(a + a.T)

        def read() -> None:
            found = [*getattr(mm.linalg, name)(x)]
            for part in reversed(found) if backwards else found:
                part.numpy()

        assert operations(read)[name] == 1


@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_products_that_are_larger_than_their_operands(kind: str, workers: int) -> None:
    with current(kind, workers):
        x = mm.asarray(np.random.default_rng(0).normal(size=(1100, 3)))

        def read() -> None:
            gram = x @ x.T
            assert float(mm.max(gram)) >= float(mm.min(gram))

        assert operations(read)["gemm"] + operations(read)["contract"] == 1


def test_differences_of_all_pairs() -> None:
    with current("inline", 1):
        x = mm.asarray(np.random.default_rng(0).normal(size=(300, 3)))

        def read() -> None:
            distances = mm.sum((x[:, None] - x[None]) ** 2, axis=-1)
            mm.argmin(distances, axis=1).numpy()
            mm.min(distances, axis=1).numpy()

        assert operations(read)["square"] == 1
