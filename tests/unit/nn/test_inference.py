"""Inference by compiled functions: normalization folded into weights once, epilogues of convolutions,
and values that follow every change of the variables."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current
from magmath import nn
from magmath.kernels.conv import frozen_filters, packed_convolution
from magmath.kernels.conv.convolution import _bound, candidates_for
from magmath.kernels.conv.convolution_problem import ConvolutionProblem
from magmath.kernels.dispatch.tuner import Tuner
from magmath.kernels.epilogue import Epilogue
from magmath.kernels.gemm.gemm import bind_gemm
from magmath.program.instructions import Call
from torch_counterparts import Counterpart

POOLS = pytest.mark.parametrize(
    ("kind", "workers"),
    [("inline", 1), ("shared", 2), ("messages", 2), ("shared", 4), ("exact", 2)],
)


def _network(rng: np.random.Generator) -> nn.Module:
    """Every linear layer that normalization can follow."""
    return nn.Sequential(
        nn.Conv2d(6, 3, padding="same", bias=False), nn.BatchNorm(), nn.ReLU(),
        nn.Residual(
            nn.Sequential(nn.Conv2d(6, 3, padding=1, groups=2), nn.BatchNorm(), nn.ReLU(),
                          nn.Conv2d(6, 1), nn.BatchNorm(affine=False)),
        ),
        nn.ReLU(),
        nn.Conv2d(12, 3, stride=2, padding=1, groups="depthwise"), nn.BatchNorm(),
        nn.ConvTranspose2d(5, 2, stride=2), nn.BatchNorm(), nn.ReLU(),
        nn.GlobalAvgPool(), nn.Dense(7), nn.BatchNorm(), nn.ReLU(), nn.Dense(3),
    )  # fmt: skip


def _built(shape: tuple[int, ...], seed: int, dtype: str = "float32") -> tuple[nn.Module, Any]:
    rng = np.random.default_rng(seed)
    model = _network(rng).build(shape, dtype=dtype)
    for path, v in [*model.named_parameters(), *model.named_buffers()]:
        low = 0.5 if "variance" in path else -1.0
        v.assign(rng.uniform(low, 1.5, v.shape).astype(v.dtype.name))
    return model.eval(), rng.normal(size=shape).astype(dtype)


def _operations(f: Any) -> list[str]:
    program = f.programs()[0].program
    return [x.operation for x in program.instructions if isinstance(x, Call)]


def _close(actual: Any, expected: Any, dtype: str = "float32") -> None:
    expected = np.asarray(expected.detach() if isinstance(expected, torch.Tensor) else expected)
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(
        np.asarray(actual) / scale, expected / scale, atol=1e-11 if dtype == "float64" else 1e-5
    )


@POOLS
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normalization_is_folded_and_outputs_equal_torch(
    kind: str, workers: int, dtype: str
) -> None:
    with current(kind, workers):
        former = mm.get_default_dtype()
        mm.set_default_dtype(dtype)
        try:
            model, images = _built((5, 3, 9, 7), seed=workers, dtype=dtype)
            f = mm.compile(lambda x: model(x))
            x = mm.asarray(images)
            for _ in range(6):  # the candidates take turns
                _close(f(x), Counterpart(model)(images), dtype)
            assert "affine" not in _operations(f)
            assert "sqrt" not in _operations(f)
        finally:
            mm.set_default_dtype(former)


def test_bias_residual_and_activation_are_epilogues() -> None:
    with current("inline"):
        model, images = _built((4, 3, 8, 8), seed=1)
        f = mm.compile(lambda x: model(x))
        _close(f(mm.asarray(images)), Counterpart(model)(images))
        assert "relu" in _operations(f)  # of the transposed convolution
        assert _operations(f).count("correlation") == 4
        assert _operations(f).count("add") == 1
        assert _operations(f).count("relu") == 1


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2)])
def test_outputs_follow_every_change_of_a_variable(kind: str, workers: int) -> None:
    with current(kind, workers):
        model, images = _built((4, 3, 8, 8), seed=2)
        f, x = mm.compile(lambda x: model(x)), mm.asarray(images)
        optimizer = mm.optim.GradientDescent(0.01)

        @mm.compile
        def step(x: Any) -> Any:
            with model.mode(True):
                parameters = model.trainable()
                loss, gradients = mm.value_and_grad(lambda: mm.sum(model(x) ** 2), parameters)
            optimizer.update(gradients)
            return loss

        state = model.state_dict()
        changes = [
            lambda: model[0].weight.assign(model[0].weight * 1.5),
            lambda: model[1].running_mean.assign(mm.ones(6)),
            lambda: mm.evaluate(step(x)),
            lambda: model[1].weight.assign(np.full(6, 0.25, "float32")),
            lambda: mm.evaluate(step(x)),
            lambda: model.load_state_dict(state),
        ]
        for change in [lambda: None, *changes]:
            change()
            for _ in range(4):
                _close(f(x), Counterpart(model)(images))


def test_frozen_values_are_computed_once() -> None:
    with current("inline") as pool:
        model, images = _built((2, 3, 8, 8), seed=3)
        f, x = mm.compile(lambda x: model(x)), mm.asarray(images)
        mm.evaluate(f(x))
        frozen = f._last_used._hoisted
        made = frozen.data()
        mm.evaluate(f(x))
        assert frozen.data() is made
        model[1].bias.assign(model[1].bias + 1.0)
        assert frozen.data() is not made
        assert not pool.closed


FACTORIZATIONS: dict[str, Any] = {
    "inv": mm.linalg.inv,
    "solve": lambda v: mm.linalg.solve(v, 3 * v),
    "cholesky": mm.linalg.cholesky,
}


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2)])
@pytest.mark.parametrize("name", FACTORIZATIONS)
def test_factorizations_of_variables_are_computed_once_and_fail_in_each_call(
    name: str, kind: str, workers: int
) -> None:
    with current(kind, workers):
        v = mm.variable("v", 4 * mm.eye(120))
        f = mm.compile(lambda x: x @ FACTORIZATIONS[name](v))
        x = mm.ones((2, 120))
        for factor in (4, 4, 0, 0, 1, 1):
            v.assign(factor * mm.eye(120))
            if factor:
                _close(f(x), x @ FACTORIZATIONS[name](v))
                continue
            for _ in range(3):
                with pytest.raises(np.linalg.LinAlgError, match=name):
                    np.asarray(f(x))
        assert not {"inv", "lu", "lu_solve", "cholesky"} & set(_operations(f))


def test_functions_that_change_variables_or_draw_keep_nothing() -> None:
    with current("inline"):
        v, w = mm.variable("v", 2.0), mm.variable("w", np.arange(3.0))

        def counted(x: Any) -> Any:
            v.assign(v + 1.0)
            return x * (v * w)

        f = mm.compile(counted)
        for i in range(3):
            np.testing.assert_allclose(f(mm.ones(3)), np.arange(3.0) * (3 + i))
        g = mm.compile(lambda x: x + mm.exp(w) + mm.random.normal(shape=(3,)))
        assert not np.array_equal(g(mm.ones(3)), g(mm.ones(3)))
        assert f._last_used._hoisted is None
        assert g._last_used._hoisted is None


def test_a_large_value_of_a_small_variable_is_not_kept() -> None:
    with current("inline"):
        w = mm.variable("w", np.arange(3.0))
        f = mm.compile(lambda x: x + mm.reshape(mm.exp(w), (3, 1)) * mm.reshape(w, (1, 3)))
        for _ in range(2):
            expected = np.exp(np.arange(3.0))[:, None] * np.arange(3.0) + 1
            np.testing.assert_allclose(f(mm.ones((3, 3))), expected)
        assert [x.shape for x in f._last_used._hoisted.leaves] == [(3, 1)]


def _problem(draw: Any, memory: torch.memory_format) -> ConvolutionProblem:
    groups = draw(st.sampled_from([1, 1, 2]))
    images, channels, outputs = (
        draw(st.integers(1, 3)),
        *(draw(st.integers(1, 20)) * groups for _ in "xy"),
    )
    kernel = draw(st.sampled_from([1, 3, 3]))
    space = [draw(st.integers(3, 13)) for _ in "hw"]
    pad = draw(st.integers(0, kernel // 2))
    extents = [n + 2 * pad - kernel + 1 for n in space]
    random = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    make = partial(torch.randn, generator=random)
    x = make(images, channels, *space).contiguous(memory_format=memory)
    w = make(outputs, channels // groups, kernel, kernel)
    y = make(images, outputs, *extents).contiguous(memory_format=memory)
    return ConvolutionProblem("forward", x, w, y, (-pad, -pad), (1, 1), (1, 1), groups)


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_every_candidate_applies_the_epilogue(data: st.DataObject) -> None:
    memory = data.draw(st.sampled_from([torch.channels_last, torch.contiguous_format]))
    problem = _problem(data.draw, memory)
    y, biases = problem.y, torch.randn(problem.w.shape[0], 3)
    bias = data.draw(st.sampled_from([None, biases[:, 0].clone(), biases[:, 1]]))
    residual = {"none": None, "other": torch.randn(y.shape), "same": torch.randn_like(y), "own": y}[
        data.draw(st.sampled_from(["none", "other", "same", "own"]))
    ]
    activation = data.draw(st.sampled_from(["none", "relu"]))
    expected = torch.nn.functional.conv2d(
        problem.x.double(), problem.w.double(), None if bias is None else bias.double(),
        padding=-problem.offset[0], groups=problem.groups,
    )  # fmt: skip
    expected = expected if residual is None else expected + residual.double()
    expected = torch.relu(expected) if activation == "relu" else expected
    shaped = None if bias is None else bias.reshape(1, -1, 1, 1)
    problem = replace(
        problem, epilogue=Epilogue(shaped, residual, activation), content_id=torch.tensor(1)
    )
    former = y.clone()
    inner = partial(bind_gemm, tuner=Tuner(enabled=False))
    for candidate in candidates_for(problem, 1 << 30):
        call = _bound(candidate, problem, inner)
        for _ in range(2):
            y.copy_(former)
            call()
            error = (y.double() - expected).abs().max() / (1 + expected.square().mean().sqrt())
            assert error < 1e-4, candidate.name


@pytest.mark.parametrize("memory", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize("residual", [None, "other", "own"])
@pytest.mark.parametrize("biased", [False, True])
def test_relu_of_every_candidate_keeps_nan(
    memory: torch.memory_format, residual: str | None, biased: bool
) -> None:
    x, w = torch.ones(2, 32, 16, 16), torch.randn(32, 32, 3, 3)
    x[0, 0, 8, 8] = torch.nan
    y = torch.empty(2, 32, 16, 16).contiguous(memory_format=memory)
    added = {None: None, "own": y, "other": torch.zeros_like(y)}[residual]
    epilogue = Epilogue(torch.zeros(1, 32, 1, 1) if biased else None, added, "relu")
    problem = ConvolutionProblem(
        "forward", x.contiguous(memory_format=memory), w, y, (-1, -1), (1, 1), (1, 1), 1, epilogue,
        content_id=torch.tensor(1),
    )  # fmt: skip
    inner = partial(bind_gemm, tuner=Tuner(enabled=False))
    for candidate in candidates_for(problem, 1 << 30):
        y.zero_()
        _bound(candidate, problem, inner)()
        assert y[0, :, 7:10, 7:10].isnan().all(), candidate.name
        assert (y[1] >= 0).all(), candidate.name


def test_reordered_filters_follow_their_version() -> None:
    x, w = torch.randn(2, 8, 6, 6), torch.randn(4, 8, 3, 3)
    y, content_id = torch.empty(2, 4, 6, 6), torch.tensor(7)
    problem = ConvolutionProblem(
        "forward", x, w, y, (-1, -1), (1, 1), (1, 1), 1, content_id=content_id
    )
    assert packed_convolution.can_bind(problem)
    call = packed_convolution.bind(problem, None)
    call()
    torch.testing.assert_close(y, torch.nn.functional.conv2d(x, w, padding=1))
    other = packed_convolution.bind(problem, None)
    assert len([k for k in frozen_filters._by_memory if k[0] == w.data_ptr()]) == 1
    w *= 2
    content_id.fill_(8)
    for run in (other, call):
        run()
        torch.testing.assert_close(y, torch.nn.functional.conv2d(x, w, padding=1))


@pytest.fixture(autouse=True)
def _float32() -> Iterator[None]:
    yield
    assert mm.get_default_dtype() is mm.float32


@pytest.mark.parametrize("kept", ["hoisted value", "frozen filters"])
@pytest.mark.parametrize("seed", range(4))
def test_values_in_memory_that_is_used_again_are_other_values(kept: str, seed: int) -> None:
    """A variable takes results of repeated runs, values of programs that update it in place, and
    arrays whose elements are written in place: memory and its number stay, values do not."""
    shape, choice = (16, 16, 3, 3), random.Random(seed)
    x = np.ones((2, 16, 16, 16), np.float32)
    with current("inline"):
        v, images = mm.variable("v", mm.ones(shape)), mm.asarray(x)
        scaled = mm.compile(lambda w, k: w * k)
        step = mm.compile(lambda k: v.assign(v * k))
        other, zeros = mm.zeros(shape) + 1.0, mm.zeros(shape)
        if kept == "hoisted value":
            f = mm.compile(lambda x: mm.sum(x) + mm.sum(mm.exp(v)))
        else:
            f = mm.compile(lambda x: mm.sum(nn.functional.conv2d(x, v)))

        def take_written() -> None:
            v.assign(zeros)  # then nothing but its name refers to the array
            for i in range(16):
                other[i] = choice.random()
            v.assign(other)

        ways = [
            lambda: v.assign(scaled(v, choice.uniform(0.5, 1.5))),
            lambda: step(choice.uniform(0.5, 1.5)),
            take_written,
        ]
        for _ in range(40):
            for way in choice.choices(ways, [4, 1, 1], k=choice.randint(1, 3)):
                way()
            w = v.numpy()
            expected = x.sum() + np.exp(w).sum() if kept == "hoisted value" else 392 * w.sum()
            np.testing.assert_allclose(float(f(images)), expected, rtol=1e-4)


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2)])
def test_the_residual_of_a_convolution_may_be_what_it_reads(kind: str, workers: int) -> None:
    """All candidates run in the first calls; the images are temporaries, channels last."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 16, 16, 16)).astype(np.float32)
    filters = [rng.normal(size=(16, 16, 3, 3)).astype(np.float32) / 12 for _ in range(3)]
    h = torch.from_numpy(x)
    first, second, last = (partial(_padded, w=torch.from_numpy(w)) for w in filters)
    h = first(h).relu()
    expected = last(h + second(h)).numpy()
    with current(kind, workers):
        weights = [mm.variable(f"w{i}", w) for i, w in enumerate(filters)]

        @mm.compile
        def f(x: Any) -> Any:
            h = nn.functional.relu(nn.functional.conv2d(x, weights[0], padding=1))
            h = h + nn.functional.conv2d(h, weights[1], padding=1)
            return nn.functional.conv2d(h, weights[2], padding=1)

        images = mm.asarray(x)
        for _ in range(24):
            np.testing.assert_allclose(f(images).numpy(), expected, rtol=1e-3, atol=1e-3)


def _padded(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv2d(x, w, padding=1)


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 3)])
@pytest.mark.parametrize("space", [1, 2, 3, 4])
def test_epilogues_of_convolutions_over_any_number_of_dimensions(
    kind: str, workers: int, space: int
) -> None:
    rng = np.random.default_rng(space)
    x, w = rng.normal(size=(3, 2, *[5] * space)), rng.normal(size=(4, 2, *[3] * space))
    b, r = rng.normal(size=4), rng.normal(size=(3, 4, *[3] * space))
    with current(kind, workers):
        arrays = [mm.asarray(values) for values in (x, w, b, r)]
        plain = nn.functional.conv(*arrays[:2]).numpy()
        biased = plain + b.reshape(-1, *[1] * space)
        f = mm.compile(lambda x, w, b, r: mm.relu(nn.functional.conv(x, w, b) + r))
        _close(f(*arrays), np.maximum(biased + r, 0), "float64")
        assert _operations(f).count("correlation") == 1
        assert not {"add", "relu", "maximum"} & {*_operations(f)}
