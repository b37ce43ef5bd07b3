"""Denormal numbers: flushed to zero in training steps only, on all threads, unless disabled."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

import magmath as mm
from magmath import nn
from magmath.arrays.array import Array
from magmath.engine import session
from magmath.kernels import denormals
from magmath.kernels.denormals import flushed, flushed_here, is_flushing
from magmath.train import Trainer

TINY = np.float32(1e-39)  # below the smallest normal number, 1.2e-38


class Scale(nn.Module):
    """x · (1 + w): with w = 0 in the products, but kept as a denormal number."""

    def __init__(self) -> None:
        self.w = nn.Parameter(np.full(4, TINY))

    def __call__(self, x: Array) -> Array:
        return x * (1 + self.w)


class Repeated(Scale):
    """The same, with a long loop whose state becomes a denormal number."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Buffer(np.ones(4, np.float32))

    def __call__(self, x: Array) -> Array:
        start = mm.full((4,), 1e-37, dtype=mm.float32)
        self.last.assign(mm.fori_loop(0, 5000, lambda i, z: z * 0.999, start))
        return super().__call__(x)


def trained(**options: Any) -> Any:
    """Return w after two epochs in which its gradient is zero, and the product of two numbers."""
    x = np.zeros((40, 4), np.float32)
    with mm.init(device="cpu", **options):  # GPUs are as fast with denormal numbers
        model = Scale()
        Trainer(model, "mean_squared_error", mm.optim.GradientDescent(0.1)).fit(
            x, x, batch_size=10, epochs=2
        )
        product = np.asarray(mm.asarray(np.full(3, 1e-30, np.float32)) * np.float32(1e-10))
        return model.w.numpy(), product


@pytest.mark.parametrize("flushes", [True, False])
def test_steps_that_are_divided_at_loops(flushes: bool) -> None:
    x = np.zeros((40, 4), np.float32)
    with mm.init(workers=0, device="cpu", flush_denormals=flushes):
        model = Repeated()
        optimizer = mm.optim.GradientDescent(0.1)
        Trainer(model, "mean_squared_error", optimizer).fit(x, x, batch_size=10)
        result = model.w.numpy(), model.last.numpy()
    for value in result:
        assert (value == 0).all() if flushes else (value > 0).all()


@pytest.mark.parametrize("workers", [0, 2])
def test_training_flushes_and_other_computations_keep_gradual_underflow(workers: int) -> None:
    w, product = trained(workers=workers)
    assert not w.any()
    assert (product > 0).all()
    assert not is_flushing()


def own_steps(kind: str) -> tuple[Any, Any]:
    """Return w after some steps of a user's own loop, and what a gradient alone gives."""
    x = mm.asarray(np.zeros((40, 4), np.float32))
    model = Scale()
    optimizer = mm.optim.GradientDescent(0.1)

    def loss() -> Array:
        return mm.mean((model(x) - x) ** 2)

    def assigned() -> Array:
        value, slopes = mm.value_and_grad(loss, model.trainable())
        for w, slope in slopes.items():
            w.assign(w - 0.1 * slope)
        return value

    def updated() -> Array:
        value, slopes = mm.value_and_grad(loss, model.trainable())
        optimizer.update(slopes)
        return value

    step: Any = {
        "compiled, assigned": mm.compile(assigned),
        "compiled, updated": mm.compile(updated),
        "updated": updated,
        "minimized": lambda: optimizer.minimize(loss(), model.trainable()),
    }.get(kind)
    if kind == "CompiledStep":
        compiled = mm.parallel.CompiledStep(
            lambda x: mm.mean((model(x) - x) ** 2), model, optimizer
        )
        step = lambda: compiled(x)  # noqa: E731
    for _ in range(3):
        step()
    return model.w.numpy(), np.asarray(mm.grad(lambda v: mm.sum(v * TINY))(mm.ones(4)))


OWN_LOOPS = ("compiled, assigned", "compiled, updated", "updated", "minimized", "CompiledStep")


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", OWN_LOOPS)
def test_steps_of_own_loops_flush_and_gradients_alone_do_not(kind: str, workers: int) -> None:
    with mm.init(workers=workers, device="cpu", launcher="threads"):
        w, slope = own_steps(kind)
    assert not w.any()
    assert (slope > 0).all()
    assert not is_flushing()


@pytest.mark.parametrize("kind", OWN_LOOPS)
def test_steps_of_own_loops_keep_gradual_underflow_if_they_are_asked_to(kind: str) -> None:
    with mm.init(workers=0, device="cpu", flush_denormals=False):
        w, _ = own_steps(kind)
    assert (w == TINY).all()


def test_compiled_functions_that_assign_without_gradients_keep_gradual_underflow() -> None:
    with mm.init(workers=0, device="cpu"):
        state = mm.variable("state", np.full(4, 1e-30, np.float32))

        @mm.compile
        def step() -> None:
            state.assign(state * np.float32(1e-9))

        step()
        assert (state.numpy() > 0).all()


def test_only_fit_overwrites_variables_before_invalid_data_are_reported() -> None:
    with mm.init(workers=0, device="cpu"):
        engine = session.engine()
        x = np.zeros((40, 4), np.float32)
        Trainer(Scale(), "mean_squared_error", mm.optim.GradientDescent(0.1)).fit(x, x)
        late = [p.program for p in engine._programs if p.program.reports_late]
        assert late
        assert all(program.flushes_denormals for program in late)
        before = len(late)
        for kind in OWN_LOOPS:
            own_steps(kind)
        programs = [p.program for p in engine._programs]
        assert len([p for p in programs if p.reports_late]) == before
        assert len([p for p in programs if p.flushes_denormals]) > before


def test_profiled_training_flushes_as_well() -> None:
    x = np.zeros((40, 4), np.float32)
    with mm.init(workers=0, device="cpu"), mm.profile() as profile:
        model = Scale()
        optimizer = mm.optim.GradientDescent(0.1)
        Trainer(model, "mean_squared_error", optimizer).fit(x, x, batch_size=10)
        assert not model.w.numpy().any()
    assert profile.runs


def test_training_keeps_gradual_underflow_if_it_is_asked_to() -> None:
    w, product = trained(workers=0, flush_denormals=False)
    assert (w == TINY).all()
    assert (product > 0).all()


@pytest.mark.parametrize("is_x86", sorted({denormals._IS_X86, False}))
def test_the_mode_reaches_all_threads_and_is_restored(
    is_x86: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code for other processors works on x86 too."""
    monkeypatch.setattr(denormals, "_IS_X86", is_x86)
    numbers = torch.full((1 << 20,), 1e-30)

    def zeros() -> int:
        return int((numbers * 1e-10 == 0).sum())

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert zeros() == 0
        with flushed():
            assert is_flushing()
            assert zeros() == len(numbers)
            with flushed_here(flush=False):
                assert not is_flushing()
            assert is_flushing()
        assert not is_flushing()
        assert zeros() == 0
    finally:
        torch.set_num_threads(before)


def test_the_mode_reaches_torch_if_another_openmp_runtime_was_loaded_first() -> None:
    """scikit-learn contains a runtime of its own, with other threads."""
    program = """
import sklearn.cluster
import torch
from magmath.kernels.denormals import flushed
torch.set_num_threads(2)
numbers = torch.full((1 << 20,), 1e-30)
with flushed():
    assert int((numbers * 1e-10 == 0).sum()) == len(numbers)
assert int((numbers * 1e-10 == 0).sum()) == 0
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=90)
