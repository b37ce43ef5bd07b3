"""Gradients through any sequence of uses of arrays are correct or raise an error; they are never
zero."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current
from magmath.errors import MagmathError
from small_expressions import appended

EXTENT = 4


def _written(x: mm.Array, y: mm.Array) -> mm.Array:
    z = x * 1
    z[1] = y[2]
    return z


def _looped(x: mm.Array, y: mm.Array) -> mm.Array:
    for _ in range(2):
        x = x * y - 0.5
    return x


PLAIN: list[Callable[[mm.Array, mm.Array], mm.Array]] = [
    lambda x, y: mm.sin(x) * y + 1,
    lambda x, y: x[::-1] - y,
    lambda x, y: x * y[1],
    lambda x, y: mm.concat([x[:1], y[1:]]),
    lambda x, y: mm.where(x > y, x, y),
    _written,
]
LOST: list[Callable[[mm.Array], object]] = [str, mm.evaluate, lambda x: x.layout, np.asarray]


class Histories:
    """Arrays, each with its counterpart: the same expression, which is never evaluated."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.compiled = [mm.compile(f) for f in PLAIN]
        values = np.random.default_rng(1).uniform(-1, 1, (3, EXTENT))
        self.sources = [self._source(i, value) for i, value in enumerate(values)]
        self.pairs = list(self.sources)
        self.lossless = True

    def _source(self, i: int, value: Any) -> tuple[mm.Array, mm.Array]:
        return mm.asarray(value) if i else mm.variable("v", value), mm.asarray(value)

    def draw(self, most: int) -> int:
        return self.data.draw(st.integers(0, most - 1))

    def step(self) -> None:
        """Combine two arrays, read a value, or drop an array."""
        (x, x2), (y, y2) = (self.pairs[self.draw(len(self.pairs))] for _ in range(2))
        kind, which = self.draw(8), self.draw(len(PLAIN))
        if kind < 3:
            self.pairs.append((PLAIN[which](x, y), PLAIN[which](x2, y2)))
        elif kind < 5:
            repeats = (
                self.draw(4) if kind == 3 else 0
            )  # which may reuse the memory of former results
            self.pairs.append((self.compiled[which](x, y), PLAIN[which](x2, y2)))
            for _ in range(repeats):
                self.compiled[which](y, x)
            self.lossless = False
        elif kind == 5:
            self.pairs.append((self._loop(x, y), _looped(x2, y2)))
            self.lossless = False
        elif kind == 6:
            LOST[self.draw(len(LOST))](x)
            self.lossless = False
        elif len(self.pairs) > 3:
            del self.pairs[self.draw(len(self.pairs))], x, y
            gc.collect(0)

    @staticmethod
    def _loop(x: mm.Array, y: mm.Array) -> mm.Array:
        result: mm.Array = mm.fori_loop(0, 2, lambda i, z: z * y - 0.5, x)
        return result


@pytest.mark.parametrize("kind", ["inline", "planned"])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_gradients_are_never_wrong(kind: str, data: st.DataObject) -> None:
    with current(kind):
        histories = Histories(data)
        for _ in range(data.draw(st.integers(1, 12))):
            histories.step()
        array, counterpart = histories.pairs[-1]
        if data.draw(st.booleans()):  # later calls make results again
            for f in histories.compiled:
                for _ in range(5):
                    f(mm.ones(EXTENT, dtype="float64"), histories.sources[1][0])
        loss, exact = mm.sum(array * array), mm.sum(counterpart * counterpart)
        for source, other in [*histories.sources, *histories.pairs]:
            expected, _ = _slope(exact, other)
            if expected is None:
                continue  # it does not depend on this
            slope, refusal = _slope(loss, source)
            if slope is None:
                assert not histories.lossless
                assert (
                    "cannot be computed again" in refusal
                    or "does not depend on this array" in refusal
                )
            else:
                np.testing.assert_allclose(slope, expected, rtol=1e-9, atol=1e-9)


def _slope(result: mm.Array, source: mm.Array) -> tuple[Any, str]:
    """The gradient, or why there is none."""
    try:
        return mm.grad(result, source).numpy(), ""
    except MagmathError as error:
        return None, str(error)


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("eager", 2), ("planned", 1)])
@settings(max_examples=12, deadline=None)
@given(
    choices=st.lists(
        st.tuples(st.integers(0, 21), st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=8
    ),
    chosen=st.sets(st.integers(0, 9), min_size=2, max_size=4),
    read=st.sets(st.integers(0, 9), max_size=4),
)
def test_sources_that_depend_on_each_other(
    kind: str,
    workers: int,
    choices: list[tuple[int, int, int]],
    chosen: set[int],
    read: set[int],
) -> None:
    """The gradient by each of several arrays is the gradient by it alone, whatever was evaluated."""
    start = np.random.default_rng(1).uniform(-1, 1, (2, 3, 3))

    def made() -> tuple[mm.Array, list[mm.Array]]:
        arrays = [mm.asarray(x) for x in start]
        appended(arrays, choices)
        total = mm.sum(sum(arrays[1:], arrays[0]) * arrays[-1])
        return total, [arrays[i % len(arrays)] for i in chosen]

    with current(kind, workers):
        total, sources = made()
        alone = [mm.grad(total, x).numpy() for x in sources]
        for values in (False, True):
            total, sources = made()
            if values:
                mm.evaluate(*[x for i, x in enumerate([total, *sources]) if i in read])
            result = mm.grad(total, sources)
            for one, other in zip(result, alone, strict=True):
                np.testing.assert_allclose(one.numpy(), other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["inline", "planned"])
def test_sources_that_were_evaluated_after_their_readers(kind: str) -> None:
    """The record of a source may be younger than those of the arrays that depend on it."""
    a = np.linspace(0.1, 1, 5)
    with current(kind):
        x = mm.asarray(a)
        d = x * 2
        c = mm.tanh(d)
        y = mm.sum(c * c)
        float(y)
        mm.evaluate(d)
        mm.evaluate(c)
        z = y * 3
        float(z)
        by_c = 6 * np.tanh(2 * a)
        expected = [by_c, by_c * 2 * (1 - np.tanh(2 * a) ** 2)]
        np.testing.assert_allclose(mm.grad(z, c).numpy(), expected[0])
        for one, other in zip(mm.grad(z, [c, x]), expected, strict=True):
            np.testing.assert_allclose(one.numpy(), other)


def test_loops_with_a_source_that_is_not_used() -> None:
    """Its gradient is zero."""
    with current("inline"):
        w, unused = mm.asarray(np.ones(3)), mm.asarray(np.ones(3))
        for _ in range(50):
            slope, none = mm.grad(mm.sum((w - 0.5) ** 2), [w, unused])
            w = w - 0.01 * slope
            unused = unused - 0.01 * none
        assert unused.numpy().tolist() == [1, 1, 1]
        np.testing.assert_allclose(w.numpy(), 0.5 + 0.5 * 0.98**50)


@pytest.mark.parametrize("complex_numbers", [False, True])
@pytest.mark.parametrize("name", ["cholesky", "eigh", "eigvalsh"])
def test_gradients_by_hermitian_matrices_are_hermitian(name: str, complex_numbers: bool) -> None:
    """As PyTorch's, although one triangle is read: a step of gradient descent keeps the matrix
    Hermitian."""
    draw = np.random.default_rng(4)
    x = draw.normal(size=(4, 4)) + 1j * complex_numbers * draw.normal(size=(4, 4))
    matrix = x @ x.conj().T + 4 * np.eye(4)
    matrix = matrix if complex_numbers else matrix.real
    weights = draw.normal(size=(4, 4))

    def loss(xp: Any, a: Any, w: Any) -> Any:
        result = getattr(xp.linalg, name)(a)
        if name == "eigh":  # the phases of eigenvectors are arbitrary
            values, vectors = result
            return (xp.abs(vectors) ** 2 * w).sum() + (values**2).sum()
        return (xp.abs(result) ** 2 * (w if name == "cholesky" else w[0])).sum()

    tensor = torch.tensor(matrix, requires_grad=True)
    loss(torch, tensor, torch.tensor(weights)).backward()
    result = mm.grad(lambda a: loss(mm, a, mm.asarray(weights)))(mm.asarray(matrix))
    np.testing.assert_allclose(result, tensor.grad, atol=1e-9)
    np.testing.assert_allclose(result, np.asarray(result).conj().T, atol=1e-12)


@pytest.mark.parametrize(
    "matrices",
    [
        [[1.0, 2.0], [2.0, 4.0]],
        [[0.0, 0.0], [0.0, 0.0]],
        [[0.0]],
        [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]],
        [[1.0, 1.0, 1.0], [2.0, 2.0, 2.0], [3.0, 3.0, 3.0]],
        [[[2.0, 1.0], [0.0, 3.0]], [[0.0, 1.0], [0.0, 0.0]]],
    ],
)
def test_gradients_of_determinants_of_singular_matrices(matrices: Any) -> None:
    """They are the cofactors."""
    a = np.array(matrices)
    n = a.shape[-1]
    cofactors = np.empty_like(a)
    for *at, i, j in np.ndindex(*a.shape):
        minor = np.delete(np.delete(a[tuple(at)], i, 0), j, 1)
        cofactors[(*at, i, j)] = (-1) ** (i + j) * (np.linalg.det(minor) if n > 1 else 1.0)
    result = mm.grad(lambda a: mm.sum(mm.linalg.det(a)))(mm.asarray(a))
    np.testing.assert_allclose(result, cofactors, atol=1e-12)
    each = mm.vmap(mm.grad(mm.linalg.det))(mm.asarray(a.reshape(-1, n, n)))
    np.testing.assert_allclose(each, cofactors.reshape(-1, n, n), atol=1e-12)


def test_second_gradients_of_determinants() -> None:
    """Those of a regular matrix are PyTorch's."""
    a = np.random.default_rng(5).normal(size=(3, 3))
    weights = np.arange(9.0).reshape(3, 3)

    def along(a: mm.Array) -> mm.Array:
        return mm.sum(mm.grad(mm.linalg.det)(a) * mm.asarray(weights))

    tensor = torch.tensor(a, requires_grad=True)
    (first,) = torch.autograd.grad(torch.linalg.det(tensor), tensor, create_graph=True)
    (second,) = torch.autograd.grad((first * torch.tensor(weights)).sum(), tensor)
    np.testing.assert_allclose(mm.grad(along)(mm.asarray(a)), second, rtol=1e-9)


def _determinant_by_minors(a: mm.Array) -> mm.Array:
    """The determinant as a polynomial, whose gradients need no inverse."""
    if a.shape[0] == 1:
        return a[0, 0]
    columns = [[k for k in range(a.shape[0]) if k != j] for j in range(a.shape[0])]
    minors = [(-1) ** j * a[0, j] * _determinant_by_minors(a[1:][:, columns[j]])
              for j in range(a.shape[0])]  # fmt: skip
    return sum(minors[1:], minors[0])


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize(("n", "rank"), [(n, r) for n in (1, 2, 3, 4) for r in range(n + 1)])
def test_hessians_of_determinants_of_any_rank(n: int, rank: int, is_complex: bool) -> None:
    """Also of matrices that are singular up to rounding, where an inverse is all error."""
    random = np.random.default_rng(n * 10 + rank)

    def normal(*shape: int) -> Any:
        return random.normal(size=shape) + 1j * is_complex * random.normal(size=shape)

    a, w = normal(n, rank) @ normal(rank, n), normal(n, n)
    a, w = (x if is_complex else x.real for x in (a, w))

    def along(determinant: Callable[[mm.Array], mm.Array], part: int) -> Callable[..., mm.Array]:
        first = mm.grad(
            lambda a: mm.real(determinant(a) * (1, 1j)[part] if part else determinant(a))
        )
        return mm.grad(lambda a: mm.sum(mm.real(first(a) * mm.asarray(w))))

    for part in range(1 + is_complex):
        expected = along(_determinant_by_minors, part)(mm.asarray(a))
        actual = along(mm.linalg.det, part)(mm.asarray(a))
        np.testing.assert_allclose(actual, expected, atol=1e-10)


def test_third_gradients_of_determinants() -> None:
    a, v, w = np.random.default_rng(6).normal(size=(3, 3, 3))

    def third(determinant: Callable[[mm.Array], mm.Array]) -> mm.Array:
        first = mm.grad(determinant)
        second = mm.grad(lambda a: mm.sum(first(a) * mm.asarray(v)))
        return mm.grad(lambda a: mm.sum(second(a) * mm.asarray(w)))(mm.asarray(a))

    np.testing.assert_allclose(third(mm.linalg.det), third(_determinant_by_minors), atol=1e-10)


def test_gradients_by_arrays_keep_none_of_them() -> None:
    """Also if one was computed from another one."""
    with current("inline"):
        references, parameter = [], mm.ones(3)
        for _ in range(4):
            x = mm.asarray([1.0, 2.0, 3.0])
            y = x * 2.0
            for _ in range(3):
                parameter = parameter * 0.5
                loss = mm.sum(x * y * parameter)
                mm.grad(loss, [x, y, parameter])
            references.append(weakref.ref(x.node))
            del x, y, loss
        gc.collect()
        assert sum(reference() is not None for reference in references) <= 1
