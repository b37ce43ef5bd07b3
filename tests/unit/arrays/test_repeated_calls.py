"""Gradients through repeated calls of a compiled function, whose records are made when they are
needed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import magmath as mm
from engines import current
from magmath.graph.provenance import provenance
from magmath.graph.provenance.repeated_calls import CallResult

KINDS = pytest.mark.parametrize("kind", [("inline", 1), ("planned", 1), ("shared", 2)])


def step(m: Any, x: Any, y: Any, k: float) -> Any:
    """Compute the same with magmath and PyTorch."""
    return m.sin(x) * k + y * 0.5


def pair(m: Any, x: Any, v: Any) -> tuple[Any, Any]:
    return x + v * 0.1, v - m.sin(x) * 0.1


def counterpart(array: np.ndarray[Any, Any]) -> torch.Tensor:
    return torch.tensor(array, requires_grad=True)


@KINDS
@given(data=st.data())
def test_gradients_equal_those_of_pytorch(kind: tuple[str, int], data: st.DataObject) -> None:
    """Loops that feed results to the next call, change other arguments at times, read values and
    records in between, and keep some results."""
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x, y = rng.standard_normal((2, 5))
    actions = data.draw(
        st.lists(
            st.sampled_from(["step", "step", "step", "swap", "read", "record", "keep", "again"]),
            min_size=3,
            max_size=20,
        )
    )
    with current(*kind):
        f = mm.compile(lambda x, y, k: step(mm, x, y, k))
        z, w = mm.asarray(x), mm.asarray(y)
        tz, tw = counterpart(x), counterpart(y)
        sources, counterparts = [z, w], [tz, tw]
        for i, action in enumerate(actions):
            k = 1.0 + 0.1 * (i % 3)
            if action == "step":
                z, tz = f(z, w, k), step(torch, tz, tw, k)
            elif action == "again":  # the result of the first call is not read
                f(z, w, k)
                z, tz = f(z, w, k), step(torch, tz, tw, k)
            elif action == "swap":
                z, w, tz, tw = w, z, tw, tz
            elif action == "read":
                np.testing.assert_allclose(z.numpy(), tz.detach().numpy(), rtol=1e-12)
            elif action == "record":
                float(mm.sum(z))
            else:
                sources.append(z)
                counterparts.append(tz)
                tz.retain_grad()
        (tz * tz).sum().backward()  # type: ignore[no-untyped-call]
        loss = mm.sum(z * z)
        for source, other in zip(sources, counterparts, strict=True):
            if other.grad is not None:
                result = mm.grad(loss, source)
                np.testing.assert_allclose(
                    result.numpy(), other.grad.numpy(), rtol=1e-9, atol=1e-12
                )


@KINDS
def test_several_results_feed_the_next_call(kind: tuple[str, int]) -> None:
    x, v = np.random.default_rng(1).standard_normal((2, 4))
    with current(*kind):
        f = mm.compile(lambda x, v: pair(mm, x, v))
        a, b, ta, tb = mm.asarray(x), mm.asarray(v), counterpart(x), counterpart(v)
        sources, counterparts = (a, b), (ta, tb)
        for _ in range(10):
            (a, b), (ta, tb) = f(a, b), pair(torch, ta, tb)
        (ta * tb).sum().backward()  # type: ignore[no-untyped-call]
        for result, other in zip(mm.grad(mm.sum(a * b), sources), counterparts, strict=True):
            assert other.grad is not None
            np.testing.assert_allclose(result.numpy(), other.grad.numpy(), rtol=1e-12)


def test_calls_that_feed_each_other_make_no_records() -> None:
    with current("inline"):
        f = mm.compile(lambda x, y: x + y)
        x, y = mm.zeros(3), mm.ones(3)
        for _ in range(5):
            x = f(x, y)
        leaf = x._leaf
        assert leaf is not None
        assert isinstance(leaf.provenance, CallResult)
        assert provenance.provenance_of(leaf) is leaf.provenance
        assert f(x, y).tolist() == [6.0] * 3


def slope_or_reason(y: mm.Array, x: mm.Array) -> mm.Array | str:
    try:
        result: mm.Array = mm.grad(y, x)
    except mm.errors.MagmathError as error:
        return str(error)
    return result


@pytest.mark.parametrize("calls", [40, 61, 62, 63, 64, 140])
def test_long_loops_forget_their_first_operations(
    calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients through later calls are right, those through more fail, and none is zero."""
    for module in ("provenance_chains", "provenance", "repeated_calls"):
        monkeypatch.setattr(f"magmath.graph.provenance.{module}.MAX_LENGTH", 120)
    with current("planned"):
        f: Callable[..., Any] = mm.compile(lambda x, y: x * 0.99 + y)
        first, y = mm.ones(3, dtype=mm.float64), mm.ones(3, dtype=mm.float64)
        x, kept = first, []
        for i in range(calls):
            x = f(x, y)
            kept.append(x if i % 7 == 0 else None)
        for i, source in [(-1, first), *enumerate(kept)]:
            if source is None:
                continue
            slope = slope_or_reason(mm.sum(x), source)
            if isinstance(slope, str):
                assert "120 operations" in slope
                assert calls - i > 20
            else:
                np.testing.assert_allclose(slope.numpy(), 0.99 ** (calls - 1 - i), rtol=1e-12)
                assert calls - i <= 65
        if calls <= 40:
            mm.grad(mm.sum(x), y)


def test_a_result_that_the_user_holds_has_a_gradient_at_the_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("provenance_chains", "provenance", "repeated_calls"):
        monkeypatch.setattr(f"magmath.graph.provenance.{module}.MAX_LENGTH", 120)
    with current("inline"):
        f: Callable[..., Any] = mm.compile(lambda x, y: x * 0.99 + y)
        x, y = mm.ones(3, dtype=mm.float64), mm.ones(3, dtype=mm.float64)
        for _ in range(200):
            before, x = x, f(x, y)
            np.testing.assert_allclose(mm.grad(mm.sum(x), before).numpy(), 0.99)
        for _ in range(200):
            before, x = x, f(x, y)
        np.testing.assert_allclose(mm.grad(mm.sum(x), before).numpy(), 0.99)


def test_long_loops_of_large_arrays_forget_results_that_no_longer_exist(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("provenance_chains", "provenance", "repeated_calls"):
        monkeypatch.setattr(f"magmath.graph.provenance.{module}.MAX_LENGTH", 120)
    with current("inline"):
        f: Callable[..., Any] = mm.compile(lambda x, y: x * 0.5 + y)
        x, y = mm.zeros(20_000), mm.ones(20_000)
        for _ in range(100):
            x = f(x, y)
        assert float(x[0]) == 2.0


def test_a_long_loop_depends_on_results_that_were_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients through too many calls fail, also those of a result that was used in between."""
    for module in ("provenance_chains", "provenance", "repeated_calls"):
        monkeypatch.setattr(f"magmath.graph.provenance.{module}.MAX_LENGTH", 120)
    with current("inline"):
        f: Callable[..., Any] = mm.compile(lambda x: x * 0.99)
        x = kept = mm.ones(3)
        for i in range(400):
            x = f(x)
            if i == 5:
                kept = x
            elif i == 10:
                float(mm.sum(kept * 2.0))
        with pytest.raises(mm.errors.MagmathError, match="120 operations"):
            mm.grad(mm.sum(x), kept)


@pytest.mark.parametrize("calls", [1, 2, 5])
def test_an_argument_that_is_returned_has_a_gradient(calls: int) -> None:
    with current("inline"):
        f = mm.compile(lambda x, y: (y, x * 0.5))
        x, y = counterpart(np.array([1.0, 2.0])), counterpart(np.array([3.0, 5.0]))
        a, b = mm.asarray(x.detach().numpy()), mm.asarray(y.detach().numpy())
        sources, counterparts = (a, b), (x, y)
        for _ in range(calls):
            (a, b), (x, y) = f(a, b), (y, x * 0.5)
        (x * x + y * 3.0).sum().backward()  # type: ignore[no-untyped-call]
        for result, other in zip(
            mm.grad(mm.sum(a * a + b * 3.0), sources), counterparts, strict=True
        ):
            assert other.grad is not None
            np.testing.assert_allclose(result.numpy(), other.grad.numpy())


def test_two_threads_may_differentiate_results_of_one_loop() -> None:
    with current("inline"):
        f = mm.compile(lambda x, y: mm.sin(x) * 0.9 + y)
        x, y = mm.full(3, 0.3, dtype=mm.float64), mm.full(3, 0.1, dtype=mm.float64)
        wrong: list[float] = []
        for _ in range(20):
            z, results = x, []
            for _ in range(12):
                z = f(z, y)
                results.append(z)

            def work(results: list[mm.Array] = results) -> None:
                for k, result in enumerate(results):
                    slope, value = 1.0, 0.3
                    for _ in range(k + 1):
                        slope, value = slope * 0.9 * np.cos(value), 0.9 * np.sin(value) + 0.1
                    actual = float(mm.grad(mm.sum(result), x)[0])
                    if abs(actual - slope) > 1e-12:
                        wrong.append(actual - slope)

            threads = [threading.Thread(target=work) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert not wrong
