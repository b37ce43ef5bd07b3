"""Compiled functions that update arguments in place give NumPy's values if other arguments, or arrays
that they capture, share elements with these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current
from magmath.errors import ReadOnlyError

VIEWS: dict[str, Callable[[Any], Any]] = {
    "the array": lambda a: a,
    "all elements": lambda a: a[...],
    "rows": lambda a: a[1:],
    "first column": lambda a: a[:, 0],
    "other columns": lambda a: a[:, 1:],
    "every second": lambda a: a[::2, ::-1],
    "transpose": lambda a: a.T,
    "row of the transpose": lambda a: a.T[1],
    "reshaped": lambda a: a.reshape(-1),
    "copy": lambda a: a.copy(),
}
Step = tuple[int, str, int]
STEPS = st.lists(
    st.tuples(
        st.integers(0, 2), st.sampled_from(["add", "scale", "set", "part"]), st.integers(0, 3)
    ),
    min_size=1,
    max_size=4,
)


def _updated(arrays: Sequence[Any], steps: Sequence[Step]) -> Any:
    """Update arrays in place by steps; return a number that depends on all of them."""
    for target, step, source in steps:
        x, number = arrays[target], 0.5 * arrays[source % len(arrays)].mean()
        if step == "add":
            x += number
        elif step == "scale":
            x *= 0.75
        elif step == "set":
            x[...] = number
        else:
            x[1:] = number
    return sum((i + 1.0) * (x * x).sum() for i, x in enumerate(arrays))


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2)])
@settings(deadline=None, max_examples=40)
@given(
    names=st.lists(st.sampled_from(sorted(VIEWS)), min_size=3, max_size=3),
    captured=st.none() | st.sampled_from(sorted(VIEWS)),
    steps=STEPS,
    is_large=st.booleans(),
    is_from_numpy=st.booleans(),
)
def test_updates_of_shared_elements_equal_numpys(
    kind: str,
    workers: int,
    names: Sequence[str],
    captured: str | None,
    steps: Sequence[Step],
    is_large: bool,
    is_from_numpy: bool,
) -> None:
    shape = (90, 70) if is_large else (4, 3)
    values = np.random.default_rng(0).uniform(0.5, 1.5, shape)
    with current(kind, workers):
        expected, base = values.copy(), values.copy()
        array: Any = base if is_from_numpy else mm.asarray(values)
        counterparts, arrays = ([VIEWS[name](a) for name in names] for a in (expected, array))
        outer_counterparts, outer = (
            [VIEWS[captured](a)] if captured is not None else [] for a in (expected, array)
        )
        run = mm.compile(lambda *given: _updated([*given, *outer], steps))
        for _ in range(3):
            total = _updated([*counterparts, *outer_counterparts], steps)
            np.testing.assert_allclose(float(run(*arrays)), total, rtol=1e-9)
            np.testing.assert_allclose(np.asarray(array), expected, rtol=1e-9)
            for counterpart, x in zip(counterparts, arrays, strict=True):
                np.testing.assert_allclose(np.asarray(x), counterpart, rtol=1e-9)


PARTS: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "the same": (lambda a: a, True),
    "rows": (lambda a: a[1:3], True),
    "column": (lambda a: a[:, 1], True),
    "transpose": (lambda a: a.T, True),
    "one number": (lambda a: a[2, 2], True),
    "copy": (lambda a: a.clone(), False),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("part", PARTS)
def test_updates_of_tensors_that_share_memory_equal_pytorchs(part: str, dtype: Any) -> None:
    def update(x: Any, y: Any) -> Any:
        x += 1
        return y.sum()

    view, is_shared = PARTS[part]
    with current("inline"):
        expected, tensor = (torch.arange(16).reshape(4, 4).to(dtype) for _ in range(2))
        run = mm.compile(update)
        counterpart, other = view(expected), view(tensor)
        for _ in range(3):
            total = update(expected, counterpart)
            assert float(run(tensor, other)) == float(total)
            assert torch.equal(tensor, expected)
        assert torch.equal(counterpart, other)
        assert torch.equal(counterpart, view(expected)) is is_shared


@pytest.mark.filterwarnings("ignore:compile. .* reads outer")  # it is large
@pytest.mark.parametrize("is_tensor", [False, True])
@pytest.mark.parametrize("size", [4, 100_000])
@pytest.mark.parametrize("name", ["the array", "every second", "copy"])
def test_updates_reach_arrays_of_other_libraries_that_are_read_from_outside(
    name: str, size: int, is_tensor: bool
) -> None:
    views = {"the array": lambda a: a, "every second": lambda a: a[::2], "copy": lambda a: a + 0.0}
    with current("inline"):
        arrays: list[Any] = [torch.zeros(size) if is_tensor else np.zeros(size) for _ in range(2)]
        (array, expected), (outer, counterpart) = arrays, map(views[name], arrays)

        def update(x: Any) -> Any:
            x += 1.0
            return mm.sum(mm.asarray(x)) + mm.sum(mm.asarray(outer))

        run = mm.compile(update)
        for _ in range(3):
            total = float(run(array))
            expected += 1.0
            assert total == float(expected.sum()) + float(counterpart.sum())
            assert (array == expected).all()


@pytest.mark.parametrize("size", [4, 100_000])
@pytest.mark.parametrize("container", [dict, list])
def test_updates_reach_arrays_in_containers_that_are_read_from_outside(
    container: type, size: int
) -> None:
    with current("inline"):
        array, expected = np.ones(size), np.ones(size)
        outer: Any = {0: array} if container is dict else [array]

        @mm.compile
        def update(x: Any) -> None:
            x += mm.asarray(outer[0])
            x += mm.asarray(outer[0])

        for _ in range(3):
            update(array)
            expected *= 4
            assert (array == expected).all()


@pytest.mark.parametrize("kind", ["view of a leaf", "inference"])
def test_tensors_that_cannot_be_written_change_no_variable(kind: str) -> None:
    with current("inline"):
        count = mm.variable("count", 0.0)

        @mm.compile
        def update(x: Any) -> None:
            count.assign(count + 1)
            x += 1

        with torch.inference_mode():
            tensor = torch.ones(4)
        if kind == "view of a leaf":
            tensor = torch.ones(4, requires_grad=True)[:2]
        with pytest.raises(ReadOnlyError, match="requires gradients|inference mode"):
            update(tensor)
        assert float(count) == 0.0


VARIABLES: list[mm.Variable] = []
READ_ONLY: dict[str, Callable[[], Any]] = {
    "broadcast": lambda: mm.broadcast_to(mm.zeros(()), (3,)),
    "part of a variable": lambda: VARIABLES[-1][:],
    "NumPy": lambda: np.broadcast_to(np.zeros(3), (3,)),
    "requires gradients": lambda: torch.zeros(3, requires_grad=True),
    "expanded": lambda: torch.zeros(1).expand(3),
}


@pytest.mark.parametrize("name", READ_ONLY)
def test_nothing_changes_if_one_of_the_updated_arguments_is_read_only(name: str) -> None:
    with current("inline"):
        VARIABLES[:] = [mm.variable("w", np.zeros(3))]
        count, y, x = mm.variable("count", 0.0), mm.zeros(3), READ_ONLY[name]()

        @mm.compile
        def update(*arrays: Any) -> None:
            count.assign(count + 1.0)
            for a in arrays:
                a += 1.0

        for arguments in ((y, x), (x, y)):
            with pytest.raises(ReadOnlyError, match="in place"):
                update(*arguments)
            assert (float(count), y.tolist(), x.tolist()) == (0.0, [0.0] * 3, [0.0] * 3)


def test_arguments_without_common_elements_are_compiled() -> None:
    calls = []

    @mm.compile
    def step(x: Any, y: Any) -> None:
        calls.append(1)
        x += y

    for a in (mm.asarray(np.ones((2, 4))), np.ones((2, 4)), torch.ones(2, 4, dtype=torch.float64)):
        calls.clear()
        step(a[:, ::2], a[:, 1::2])
        step(a[:, ::2], a[:, 1::2])
        assert len(calls) == (1 if isinstance(a, mm.Array) else 0)
        np.testing.assert_allclose(np.asarray(a), [[3.0, 1.0, 3.0, 1.0]] * 2)


@pytest.mark.parametrize("workers", [0, 2])
def test_results_are_arrays_of_their_own(workers: int) -> None:
    @mm.compile
    def updated(x: Any, y: Any, z: Any) -> Any:
        x += y
        return x, y, x[:1], z

    with current("shared" if workers else "inline", workers or 1):
        x, z = mm.asarray([1.0, 2.0, 3.0]), mm.ones(2)
        results = updated(x, x[::-1], z)
        x *= 10
        z += 1
        for result, expected in zip(results, ([4, 4, 4], [4, 4, 4], [4], [1, 1]), strict=True):
            np.testing.assert_array_equal(result, expected)
