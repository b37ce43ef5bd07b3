"""Results that are read one after the other are computed once, if user code refers to what they
share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath.engine.lifetimes.intermediate_cache import MAX_INTERMEDIATES

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
            result = [*getattr(mm.linalg, name)(x)]
            for part in reversed(result) if backwards else result:
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


PENDING = [  # expressions of arrays that later lines write into; nothing reads them before the end
    "b = np.concatenate([b[1:], a[1:2]])",
    "b = b * 0.5 + a",
    "b = np.where(b > a, b, c)",
    "sums.append(a[1:4] + c[:3])",
    "sums.append(a - c)",
]
WRITES = [
    "a[1] = 1.5",
    "a[1:] -= c[1:]",
    "a[::2] *= 0.5",
    "a[a > 3] = 0.25",
    "a.reshape(2, -1)[0] = 3",
]
READS = ["float(a[1])", "float(a.sum())", "a.max().item()"]
UPDATES = ["a += c", "a = a - c", "a -= c * 0.5"]
OTHER_WRITES = ["c[1] = a[-2]", "c[1:3] = 0.5", "c *= 0.5", "c[::2] += a[::2]"]


def _run_lines(lib: Any, lines: list[str], extent: int) -> list[Any]:
    values = {name: lib.asarray(np.arange(extent) % 7 * 0.5**i) for i, name in enumerate("abc")}
    names: dict[str, Any] = {"np": lib, "sums": [], **values}
    code = compile("\n".join(lines), "<lines>", "exec")
    for _ in range(MAX_INTERMEDIATES + 6):
        exec(code, names)
    return [*[names[name] for name in "abc"], *names["sums"]]


@pytest.mark.parametrize(("kind", "workers"), POOLS)
@pytest.mark.parametrize("pending", PENDING)
def test_pending_expressions_of_overwritten_arrays(pending: str, kind: str, workers: int) -> None:
    """A stored intermediate keeps its value if its operand was overwritten since."""
    random = Random(f"{pending} {kind}")  # other lines in each test
    with current(kind, workers):
        for _ in range(6):
            parts = [random.choice(x) for x in (WRITES, READS, UPDATES, OTHER_WRITES)]
            lines = [pending, *parts]
            results = _run_lines(mm, lines, 30_000)
            for ours, theirs in zip(results, _run_lines(np, lines, 30_000), strict=True):
                np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-9, err_msg=str(lines))


USES: dict[str, Callable[[Any], Any]] = {
    "operator": lambda x: x + 1,
    "reflected": lambda x: 1 - x,
    "square": lambda x: x * x,
    "element": lambda x: x[3],
    "slice": lambda x: x[1:4],
    "positions": lambda x: x[mm.asarray([1, 2])],
    "function": lambda x: mm.mean(x),
    "written": lambda x: mm.zeros(x.shape, dtype=x.dtype).__setitem__(slice(None), x),
}


@pytest.mark.parametrize("name", USES)
def test_values_survive_a_failing_run_that_has_computed_them(name: str) -> None:
    """An array that is read while the run with its value may still fail is computed again."""
    with mm.init(workers=2, launcher="threads"):
        x = mm.asarray(np.arange(300_000.0)) * 2
        positions = mm.asarray(np.full(200_000, 10**6)) + 1
        failing = x[positions]
        mm.evaluate(failing)
        result = USES[name](x)
        with pytest.raises(IndexError):
            failing.numpy()
        del result
        np.testing.assert_array_equal(x.numpy(), np.arange(300_000) * 2.0)
