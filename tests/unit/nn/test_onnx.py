"""ONNX models: the standard's own cases, and models that were written and read again."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.reference import ReferenceEvaluator

import magmath as mm
from engines import current
from magmath import nn
from magmath.arrays.tree import flatten
from magmath.errors import (
    DataError,
    DTypeError,
    MagmathError,
    MissingPackageError,
    OptionError,
    RangeError,
    ShapeError,
)
from magmath.interop import from_onnx, to_onnx
from magmath.interop.writing_onnx import onnx_export
from magmath.interop.writing_onnx.emit_elementwise import ELEMENTWISE
from magmath.ops.elementwise import tables

f = nn.functional
DRAWN = ("bernoulli", "training_dropout")
UNKNOWN = ("does not have", "not available", "not known to magmath", "has no counterpart")
DEPARTING = ("linear_align_corners", "cubic_align_corners")
"""Cases `test_resize_downsample_scales_…` that divide by the extent before it is rounded down. The
standard's text (`length_resized`), PyTorch and ONNX Runtime divide by the extent of the result."""
LEAST_CASES = 1450
"""The number of cases of the standard that magmath computes, of about 1,900. The others have strings,
sequences, optional values, elements of 8 and fewer bits, pictures, or operators of other fields."""


@pytest.fixture(autouse=True)
def pool() -> None:
    mm.init(workers=0, device="cpu", seed=3)


# the standard's cases ---------------------------------------------------------------------------


def _given(x: Any) -> Any:
    return numpy_helper.to_array(x) if isinstance(x, TensorProto) else x


def _check_outputs(case: Any, actual: Any, wanted: Any) -> None:
    for got, want in zip(actual, wanted, strict=False):
        want = numpy_helper.to_array(want) if isinstance(want, TensorProto) else np.asarray(want)
        assert got.dtype.name == want.dtype.name
        assert got.shape == want.shape
        short = want.dtype.name in ("float16", "bfloat16")
        values = np.asarray(mm.astype(got, mm.float32) if short else got)
        want = want.astype(np.float32) if short else want
        relative = {"float16": 4e-3, "bfloat16": 2e-2}.get(got.dtype.name, case.rtol)
        np.testing.assert_allclose(values, want, rtol=relative, atol=max(case.atol, 1e-6))


def test_cases_of_the_standard() -> None:
    """All cases that come with the package are computed, or refused by a clear error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        departing = [f"test_resize_downsample_scales_{name}" for name in DEPARTING]
        cases = [c for c in load_model_tests(kind="node") if c.model and c.name not in departing]
    right, wrong = 0, []
    for case in cases:
        try:
            module = from_onnx(case.model)
            for inputs, outputs in case.data_sets:
                result = module(*[_given(x) for x in inputs])
                if "zero_ratio" in case.name or not any(name in case.name for name in DRAWN):
                    _check_outputs(
                        case, result if isinstance(result, tuple) else (result,), outputs
                    )
            right += 1
        except MagmathError as error:
            if not any(part in str(error) for part in UNKNOWN):
                wrong.append((case.name, str(error)))
        except AssertionError as error:
            wrong.append((case.name, str(error)))
    assert not wrong, wrong[:5]
    assert right >= LEAST_CASES


# models of PyTorch ------------------------------------------------------------------------------


def _model(
    nodes: list[Any], inputs: list[Any], outputs: list[str], stored: dict[str, Any]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "test",
        inputs,
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def _normalized_network(random: np.random.Generator) -> tuple[onnx.ModelProto, torch.nn.Module]:
    """A model as PyTorch's exporter writes it, and its counterpart."""
    counterpart = torch.nn.Sequential(
        torch.nn.Conv2d(2, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU(),
        torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(16, 3),
    )  # fmt: skip
    with torch.no_grad():
        for p in [*counterpart.parameters(), *counterpart.buffers()]:
            if p.dtype.is_floating_point:
                p.copy_(torch.from_numpy(random.uniform(0.2, 1.0, p.shape).astype(np.float32)))
    stored = {k: v.detach().numpy() for k, v in counterpart.state_dict().items() if v.ndim}
    nodes = [
        helper.make_node("Conv", ["x", "0.weight", "0.bias"], ["a"], pads=[1] * 4, kernel_shape=[3, 3]),
        helper.make_node("BatchNormalization", ["a", "1.weight", "1.bias", "1.running_mean", "1.running_var"], ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("MaxPool", ["c"], ["d"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Shape", ["d"], ["s"], start=0, end=1),
        helper.make_node("Concat", ["s", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["d", "shape"], ["e"]),
        helper.make_node("Gemm", ["e", "5.weight", "5.bias"], ["y"], transB=1),
    ]  # fmt: skip
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2, 4, 4])
    return _model(nodes, [x], ["y"], {**stored, "rest": np.asarray([-1])}), counterpart


def _torch_gradients(
    counterpart: torch.nn.Module, x: Any, labels: Any
) -> tuple[Any, dict[str, Any]]:
    loss = torch.nn.functional.cross_entropy(
        counterpart(torch.from_numpy(x)), torch.from_numpy(labels)
    )
    loss.backward()
    return loss.item(), {
        k: p.grad.numpy() for k, p in counterpart.named_parameters() if p.grad is not None
    }


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 3), ("messages", 2)])
@pytest.mark.parametrize("training", [False, True])
def test_gradients_and_buffers_are_those_of_pytorch(
    kind: str, workers: int, training: bool
) -> None:
    random = np.random.default_rng(5)
    model, counterpart = _normalized_network(random)
    counterpart.train(training)
    x = random.standard_normal((6, 2, 4, 4)).astype(np.float32)
    labels = random.integers(0, 3, 6)
    loss, gradients = _torch_gradients(counterpart, x, labels)
    with current(kind, workers):
        module = from_onnx(model).train(training)
        assert [k for k, _ in module.named_buffers()] == ["1.running_mean", "1.running_var"]

        @mm.compile
        def step(x: Any, labels: Any) -> Any:
            parameters = module.parameters()
            ours = nn.losses.cross_entropy(module(x), labels)
            return ours, mm.grad(ours, parameters)

        ours, grads = step(mm.asarray(x), mm.asarray(labels))
        np.testing.assert_allclose(float(ours), loss, rtol=1e-5)
        for (path, _), g in zip(module.named_parameters(), grads, strict=True):
            np.testing.assert_allclose(g, gradients[path], rtol=2e-4, atol=1e-5, err_msg=path)
        if training:  # the moment 0.1 of PyTorch is 0.9 here, and its variance is unbiased
            mean = dict(module.named_buffers())["1.running_mean"]
            np.testing.assert_allclose(
                mean, dict(counterpart.named_buffers())["1.running_mean"], rtol=1e-4
            )


def test_a_model_is_trained_frozen_saved_and_copied(tmp_path: Path) -> None:
    random = np.random.default_rng(6)
    model, _ = _normalized_network(random)
    x = random.standard_normal((32, 2, 4, 4)).astype(np.float32)
    labels = (x[:, 0].mean((1, 2)) > 0).astype(np.int64)
    module = from_onnx(model)
    module.freeze("0")
    before = np.asarray(module.state_dict()["0.weight"])
    history = mm.train.Trainer(module.train(), optimizer=mm.optim.Adam(1e-2)).fit(
        x, labels, epochs=8
    )
    assert history.records[-1].loss < 0.7 * history.records[0].loss
    assert (np.asarray(module.state_dict()["0.weight"]) == before).all()
    module.eval()
    wanted = np.asarray(module(x))
    for same in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        np.testing.assert_array_equal(same(x), wanted)
    module.save(tmp_path / "weights.safetensors")
    other = from_onnx(model)
    other.load(tmp_path / "weights.safetensors")
    np.testing.assert_array_equal(other(x), wanted)


# written models ---------------------------------------------------------------------------------


def _written(x: Any) -> Any:
    y = mm.copy(x)
    y[:, 1:3] = x[:, :2]
    y[:, ::2] += 1
    y[:, -1] = x[:, 0]
    return y


def _many(x: Any) -> Any:
    return (
        mm.flip(x, 0), x[1:, ::2], x[:-1], x.T, mm.cumulative_sum(x, axis=1), mm.argmax(x, axis=1),
        x.reshape(-1), mm.sort(x, axis=1), mm.argsort(x, axis=1), mm.any(x > 0, axis=1),
        mm.concat([x, x]), mm.stack([x, x], axis=1), x[:, [0, 2]], mm.arange(x.shape[0]),
        mm.clip(x, -1, 1), mm.roll(x, 1, axis=0), mm.tril(mm.ones((x.shape[0], 5))) * x,
        mm.repeat(x, 2, axis=0), mm.logsumexp(x, axis=0), mm.max(x), mm.einsum("ij,kj->ik", x, x),
        mm.diff(x, axis=0), mm.mean(x, axis=0), x - mm.mean(x), mm.std(x), mm.pad(x, 1),
        mm.logaddexp(x, 2 * x), mm.expm1(x), mm.log1p(mm.abs(x)), mm.hypot(x, x), mm.trunc(3 * x),
        mm.isfinite(x), mm.round(x * 4), x // 0.7, mm.astype(x * 9, mm.int32) // 2, x[:, 0] ** 2,
        mm.where(x > 0, x, 0.0), mm.take_along_axis(x, mm.argsort(x, axis=1), axis=1), x % 0.7,
        mm.prod(x, axis=1), mm.all(x < 9), mm.min(x, axis=0), mm.astype(x, mm.float16) * 2, mm.erf(x),
    )  # fmt: skip


CASES: dict[str, tuple[Callable[[], Any], tuple[tuple[int, ...], ...], Any, int]] = {
    "functions": (lambda: _many, ((4, 5),), np.float32, 1),
    "written": (lambda: _written, ((4, 5),), np.float64, 1),
    "two inputs": (lambda: lambda x, y: x @ y.T, ((2, 3), (2, 3)), np.float32, 1),
    "statistics": (lambda: lambda x: (x - mm.mean(x)) / mm.std(x, axis=1, keepdims=True), ((4, 3),), np.float32, 2),
    "causal": (lambda: lambda x: f.scaled_dot_product_attention(x, x, x, causal=True), ((2, 3, 5, 4),), np.float32, 3),
    "masked": (lambda: lambda x: f.scaled_dot_product_attention(x, x, x, x @ mm.matrix_transpose(x) > 5), ((2, 3, 5, 4),), np.float32, 3),
    "lenet": (nn.zoo.lenet5, ((2, 1, 28, 28),), np.float32, 1),
    "residual": (nn.zoo.resnet20, ((2, 3, 32, 32),), np.float32, 1),
    "local response": (lambda: nn.LocalResponseNorm(5), ((2, 7, 4, 4),), np.float32, 1),
    "mobile": (nn.zoo.mobilenet_v2, ((1, 3, 64, 64),), np.float32, 1),
    "encoder": (lambda: nn.TransformerEncoderLayer(8, 2, 16), ((2, 5, 8),), np.float32, 2),
    "lstm": (lambda: nn.LSTM(6), ((2, 5, 4),), np.float32, 1),
    "gru": (lambda: nn.GRU(6, bidirectional=True), ((2, 4, 3),), np.float32, 1),
    "words": (lambda: nn.Sequential([nn.Embedding(10, 4), nn.Flatten(), nn.Dense(3)]), ((2, 5),), np.int64, 1),
    "norms": (lambda: nn.Sequential([nn.LayerNorm(), nn.GroupNorm(4), nn.Dense(3, activation="gelu")]), ((2, 16),), np.float32, 1),
    "images": (lambda: nn.Sequential([nn.ConvTranspose2d(4, 3, stride=2), nn.Upsample(2), nn.AdaptiveAvgPool2d((3, 3))]), ((2, 3, 8, 8),), np.float32, 1),
    "dropout": (lambda: nn.Sequential([nn.Dense(4), nn.Dropout(0.5)]), ((3, 5),), np.float32, 1),
}  # fmt: skip


def _input(random: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    if np.dtype(dtype).kind == "i":
        return random.integers(0, 7, shape)
    return random.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("name", CASES)
def test_a_written_model_computes_what_the_module_computes(name: str, tmp_path: Path) -> None:
    """For other extents than those of the example too: by the standard's reference implementation,
    and when it is read again."""
    make, shapes, dtype, axes = CASES[name]
    module, random = make(), np.random.default_rng(7)
    if isinstance(module, nn.Module):
        module.eval()
    to_onnx(
        module, tmp_path / "x.onnx", *[_input(random, s, dtype) for s in shapes], variable_axes=axes
    )
    again = from_onnx(tmp_path / "x.onnx")
    for more in (0, 3):
        given = [
            _input(random, (*[n + more for n in shape[:axes]], *shape[axes:]), dtype)
            for shape in shapes
        ]
        wanted = [np.asarray(x) for x in flatten(module(*given))[0]]
        back = again(*given)
        actual = {"again": [np.asarray(x) for x in (back if isinstance(back, tuple) else (back,))]}
        if np.prod(shapes[0]) < 2000:  # the reference implementation loops in Python
            reference = ReferenceEvaluator(str(tmp_path / "x.onnx"))
            actual["reference"] = reference.run(
                None, dict(zip(reference.input_names, given, strict=True))
            )
        for runtime, outputs in actual.items():
            for i, (got, want) in enumerate(zip(outputs, wanted, strict=True)):
                assert got.dtype == want.dtype, (runtime, i)
                np.testing.assert_allclose(
                    got,
                    want,
                    rtol=2e-3 if want.dtype == np.float16 else 2e-4,
                    atol=2e-5,
                    err_msg=f"{runtime} {i}",
                )


def test_a_written_model_has_the_paths_of_parameters_and_names_of_extents(tmp_path: Path) -> None:
    net = nn.Sequential([nn.Dense(4), nn.BatchNorm(), nn.Dense(2)])
    model = to_onnx(
        net,
        tmp_path / "x.onnx",
        np.zeros((1, 3), np.float32),
        input_names=["features"],
        output_names=["scores"],
    )
    stored = {t.name for t in model.graph.initializer}
    assert {"0.weight", "0.bias", "2.weight", "2.bias"} <= stored
    (given,), (made,) = model.graph.input, model.graph.output
    assert (given.name, made.name) == ("features", "scores")
    assert [d.dim_param or d.dim_value for d in given.type.tensor_type.shape.dim] == ["batch", 3]
    assert [d.dim_param or d.dim_value for d in made.type.tensor_type.shape.dim] == ["batch", 2]
    assert [n.op_type for n in model.graph.node] == [
        "MatMul", "Add", "BatchNormalization", "MatMul", "Add", "Identity",
    ]  # fmt: skip
    assert net.training


def test_workers_write_and_read_the_same_model(tmp_path: Path) -> None:
    x = np.random.default_rng(8).standard_normal((5, 3, 8, 8)).astype(np.float32)
    with current("shared", 3):
        net = nn.Sequential(
            [
                nn.Conv2d(4, 3, padding=1, activation="relu"),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
                nn.Dense(2),
            ]
        )
        wanted = np.asarray(net(x))
        to_onnx(net, tmp_path / "x.onnx", x)
        np.testing.assert_allclose(from_onnx(tmp_path / "x.onnx")(x), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2)])
def test_slices_of_any_step(kind: str, workers: int, tmp_path: Path) -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    bounds = [
        slice(start, stop, step)
        for step in (-4, -2, -1, 1, 2)
        for start, stop in [(None, None), (4, 1), (1, 4), (-1, None)]
    ]

    def parts(x: Any) -> Any:
        return [x[:, part] for part in bounds if len(range(6)[part])]

    with current(kind, workers):
        model = to_onnx(_Function(parts), tmp_path / "x.onnx", x)
        written, again = ReferenceEvaluator(model).run(None, {"input": x}), from_onnx(model)(x)
        for actual, same, expected in zip(written, again, parts(x), strict=True):
            np.testing.assert_array_equal(actual, expected)
            np.testing.assert_array_equal(same, expected)


class _Function(nn.Module):
    """A module that calls a function."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, x: Any) -> Any:
        return self.function(x)


class Forked(nn.Module):
    """A module with an output dictionary, and a layer that is not called."""

    def __init__(self) -> None:
        self.called, self.left_out = nn.Dense(2), nn.Dense(3)

    def __call__(self, x: Any) -> Any:
        return {"scores": self.called(x), "kept": mm.clip(x, 0.0, 6.0)}


class Doubled(nn.Module):
    """A network for images of even extents."""

    def __init__(self) -> None:
        self.down, self.up = (
            nn.Conv2d(4, 3, stride=2, padding=1),
            nn.ConvTranspose2d(2, 2, stride=2),
        )

    def __call__(self, x: Any) -> Any:
        return mm.concat([x, self.up(self.down(x))], axis=1)


OPEN: dict[str, tuple[Callable[[], Any], tuple[int, ...], Any, list[tuple[int, ...]]]] = {
    "images": (lambda: nn.zoo.resnet20(), (2, 3, 32, 32), (0, 2, 3), [(1, 3, 64, 48), (3, 3, 40, 36)]),
    "strides": (lambda: nn.Sequential([nn.Conv2d(4, 3, stride=2, padding=1), nn.BatchNorm(), nn.ReLU(), nn.Conv2d(2, 1)]), (2, 3, 8, 8), (0, 2, 3), [(1, 3, 33, 47)]),
    "forked": (Forked, (2, 3), 1, [(5, 3)]),
    "whole mean": (lambda: lambda x: x - mm.mean(x), (4, 3), 2, [(6, 5), (1, 1)]),
    "masks": (lambda: lambda x: mm.where((x > 0) & (x < 1) | ~(x > -1), x, 0.0), (4, 3), 1, [(7, 3)]),
    "truths": (lambda: lambda x: mm.where(x > 0, x < 1, x > -1), (4, 3), 1, [(7, 3)]),
    "triangle": (lambda: lambda x: mm.where(mm.tril(mm.ones((x.shape[0], x.shape[0]), dtype=mm.bool)), x @ x.T, 0.0), (4, 3), 1, [(9, 3)]),
    "count": (lambda: lambda x: x * np.float32(x.shape[0]) + mm.asarray(x.shape[0]), (4, 3), 1, [(7, 3)]),
    "limits": (lambda: lambda x: f.relu6(4 * x) + f.hardtanh(x), (9, 3), 1, [(7, 3)]),
    "last": (lambda: lambda x: (x[:, -5:], x[:, :-5], x[:, -2:0:-1]), (2, 8), 2, [(2, 4), (3, 5), (1, 11)]),
    "same": (lambda: nn.Sequential([nn.Conv2d(4, 3, stride=2, padding="same"), nn.MaxPool2d(3, 2, padding="same"), nn.GlobalAvgPool()]), (1, 3, 20, 20), (0, 2, 3), [(1, 3, 21, 17), (2, 3, 22, 19)]),
    "last window": (lambda: nn.Sequential([nn.MaxPool2d(3, 2, ceil_mode=True), nn.MaxPool2d(2, 3, padding=1, ceil_mode=True)]), (1, 1, 21, 41), (0, 2, 3), [(1, 1, 10, 34), (2, 1, 13, 12), (1, 1, 11, 15)]),
    "halved and doubled": (Doubled, (1, 2, 32, 32), (0, 2, 3), [(1, 2, 16, 8), (2, 2, 64, 32)]),
}  # fmt: skip


@pytest.mark.parametrize("name", OPEN)
def test_axes_that_are_open(name: str, tmp_path: Path) -> None:
    make, shape, axes, others = OPEN[name]
    module, random = make(), np.random.default_rng(9)
    if isinstance(module, nn.Module):
        module.eval()
    model = to_onnx(
        module, tmp_path / "x.onnx", _input(random, shape, np.float32), variable_axes=axes
    )
    reference, again = ReferenceEvaluator(model), from_onnx(model)
    for other in (shape, *others):
        x = _input(random, other, np.float32)
        wanted = [np.asarray(y) for y in flatten(module(x))[0]]
        back = again(x)
        actual = [[np.asarray(y) for y in (back if isinstance(back, tuple) else (back,))]]
        if np.prod(other) < 2000:
            actual.append(reference.run(None, {"input": x}))
        for outputs in actual:
            for got, want in zip(outputs, wanted, strict=True):
                assert got.dtype == want.dtype
                np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5)
    if name == "forked":
        assert [value.name for value in model.graph.output] == ["scores", "kept"]
    if name == "limits":
        assert "Where" not in {node.op_type for node in model.graph.node}


TABLE = np.random.default_rng(1).normal(size=(64, 4)).astype(np.float32)


@pytest.mark.parametrize(
    ("function", "shape", "axes", "message"),
    [
        (lambda x: mm.sum(x, axis=0) / np.sqrt(x.shape[0]), (4, 3), 1, "number.*unknown way"),
        (lambda x: x + TABLE[: x.shape[1]], (1, 5, 4), 2, "array.*made again in each call"),
        (lambda x: x * 2 if x.shape[1] > 6 else x * 3, (2, 5), 2, "other values than the module"),
        (lambda x: x * min(x.shape[1], 6), (2, 5), 2, "other values than the module"),
        (lambda x: x + np.random.default_rng().normal(size=3), (4, 3), 1, "made again"),
        (lambda x: x + np.random.default_rng().normal(size=3), (4, 3), 0, "made again"),
        (lambda x: x[:, : x.shape[1] // 2 * 2], (2, 6), 2, "other operations"),
        (lambda x: f.avg_pool(x, 2, ceil_mode=True), (1, 2, 8, 6), (0, 2, 3), "other operations"),
        (nn.Upsample(scale_factor=2), (1, 2, 8, 6), (0, 2, 3), "as Upsample, .*variable_axes=0"),
        (nn.AdaptiveAvgPool2d(3), (1, 2, 8, 6), (0, 2, 3), "other operations"),
        (lambda x: (x, 3), (4, 3), 1, "must return arrays, was given int"),
        (mm.atan2, (4, 3), 1, "write it in other operations$"),
    ],
)
def test_what_a_trace_would_hide_is_refused(
    function: Any, shape: tuple[int, ...], axes: int, message: str, tmp_path: Path
) -> None:
    """Numbers and decisions of Python that depend on the extents of the inputs."""
    example = [np.ones(shape, np.float32)] * (2 if function is mm.atan2 else 1)
    with pytest.raises(MagmathError, match=message):
        to_onnx(function, tmp_path / "x.onnx", *example, variable_axes=axes)
    assert not (tmp_path / "x.onnx").exists()


def test_a_trained_network_is_written(tmp_path: Path) -> None:
    net = nn.NeuralNetwork([nn.Dense(4, activation="relu"), nn.Dense(2)])
    x = np.random.default_rng(2).normal(size=(8, 3)).astype(np.float32)
    net.fit(x, np.arange(8) % 2, epochs=1)
    for trained in (net, net.trainer):
        model = to_onnx(trained, tmp_path / "x.onnx", x)
        np.testing.assert_allclose(from_onnx(model)(x), net.predict(x), rtol=1e-5, atol=1e-6)


def test_names_that_continue_others_or_are_those_of_methods() -> None:
    w = np.ones((2, 2), np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "train"], ["h"]),
        helper.make_node("MatMul", ["h", "train.b"], ["g"]),
        helper.make_node("Add", ["g", "train_"], ["i"]),
        helper.make_node("MatMul", ["i", "train_.b"], ["j"]),
        helper.make_node("Mul", ["j", "_named"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])
    stored = {"train.b": w, "train": w, "train_": 2 * w, "train_.b": w / 2, "_named": w[0]}
    module = from_onnx(_model(nodes, [x], ["y"], stored))
    assert set(module.state_dict()) == {"train.b", "train__", "train___", "train_.b", "_named"}
    np.testing.assert_array_equal(module(w), np.full((2, 2), 6.0))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(module))(w), module(w))


def test_branches_that_the_inputs_choose_are_compiled() -> None:
    def graph(name: str, operator: str) -> Any:
        node = helper.make_node(operator, ["x"], [name])
        value = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        return helper.make_graph([node], name, [], [value])

    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=graph("a", "Exp"), else_branch=graph("b", "Neg")),
    ]  # fmt: skip
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    module = from_onnx(_model(nodes, [x], ["y"], {"zero": np.float32(0)}))
    compiled = mm.compile(lambda x: module(x))
    for values in ([1.0, 2.0], [-1.0, -2.0]):
        given = np.asarray(values, np.float32)
        wanted = np.exp(given) if given.sum() > 0 else -given
        np.testing.assert_allclose(module(given), wanted, rtol=1e-6)
        np.testing.assert_allclose(compiled(given), wanted, rtol=1e-6)


@pytest.mark.parametrize(("extent", "factor"), [(9, 1.7), (5, 0.3)])  # 15 elements, and one
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_corners_of_extents_that_are_no_multiples(mode: str, extent: int, factor: float) -> None:
    x = torch.arange(float(extent)).reshape(1, 1, 1, extent) ** 1.5
    layer, file = torch.nn.Upsample(None, (1, factor), mode, align_corners=True), BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(layer, (x,), file, dynamo=False)
    result = from_onnx(onnx.load_from_string(file.getvalue()))(x)
    np.testing.assert_allclose(result, layer(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("extent", "factor", "expected"),
    [
        (20, 0.6, [0, 1, 3, 5, 6, 8, 10, 11, 13, 14, 16, 18]),
        (10, 0.7, [0, 1, 2, 4, 5, 7, 8]),
    ],
)
def test_the_nearest_elements_are_those_of_onnx_runtime(
    extent: int, factor: float, expected: list[int]
) -> None:
    """Rounding in float32 decides: 0.6 is more than 3 / 5 in this type, and 0.7 less than 7 / 10."""
    options = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], **options)
    images = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, extent])
    model = _model([node], [images], ["y"], {"scales": np.float32([1, factor])})
    result = from_onnx(model)(np.arange(extent, dtype=np.float32)[None])
    np.testing.assert_array_equal(result, [expected])


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
@pytest.mark.parametrize("sizes", [(10, 5), (5, 5), (3, 30), (15, 2)])
def test_extents_of_a_kept_aspect_ratio(policy: str, sizes: tuple[int, int]) -> None:
    """Half of an odd extent is rounded up, as the standard says."""
    options = {"keep_aspect_ratio_policy": policy, "axes": [2, 3], "mode": "linear"}
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], **options)
    images = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 5, 10])
    model = _model([node], [images], ["y"], {"sizes": np.asarray(sizes)})
    model.opset_import[0].version = 19
    x = np.random.default_rng(0).normal(size=(1, 1, 5, 10)).astype(np.float32)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(from_onnx(model)(x), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (2, 3), (2, 3, 0)])
def test_flattening_of_empty_arrays(shape: tuple[int, ...]) -> None:
    declared = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None] * len(shape))
    x = np.zeros(shape, np.float32)
    for axis in range(-len(shape), len(shape) + 1):
        node = helper.make_node("Flatten", ["x"], ["y"], axis=axis)
        model = _model([node], [declared], ["y"], {})
        first = axis + len(shape) if axis < 0 else axis
        assert from_onnx(model)(x).shape == (prod(shape[:first]), prod(shape[first:]))


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (2, 3)])
@pytest.mark.parametrize("options", [{"exclusive": 1}, {"exclusive": 1, "reverse": 1}, {}])
def test_running_sums_of_empty_arrays(shape: tuple[int, int], options: dict[str, int]) -> None:
    declared = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, None])
    x = np.arange(prod(shape), dtype=np.float32).reshape(shape)
    for axis in range(2):
        node = helper.make_node("CumSum", ["x", "axis"], ["y"], **options)
        model = _model([node], [declared], ["y"], {"axis": np.int64(axis)})
        sums = np.cumsum(np.flip(x, axis) if "reverse" in options else x, axis=axis)
        sums = np.flip(sums, axis) if "reverse" in options else sums
        np.testing.assert_array_equal(
            from_onnx(model)(x).numpy(), sums - x if "exclusive" in options else sums
        )


@pytest.mark.parametrize("base", [np.float32(1.5), np.float64(2.0), np.int32(3)])
@pytest.mark.parametrize("kind", ["int64", "float32"])
def test_powers_of_constants(base: Any, kind: str) -> None:
    """The type is that of the base, which may be a constant that is not folded."""
    element_type = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    exponents = helper.make_tensor_value_info("x", element_type, ["n"])
    node = helper.make_node("Pow", ["base", "x"], ["y"])
    model = _model([node], [exponents], ["y"], {"base": base})
    x = np.asarray([0, 1, 2, 5], kind)
    result = from_onnx(model)(x)
    assert result.dtype.name == base.dtype.name
    np.testing.assert_allclose(result, (np.float64(base) ** x).astype(base.dtype), rtol=1e-6)


def test_softplus_of_large_numbers_has_all_digits() -> None:
    declared = helper.make_tensor_value_info("x", TensorProto.DOUBLE, ["n"])
    module = from_onnx(_model([helper.make_node("Softplus", ["x"], ["y"])], [declared], ["y"], {}))
    x = np.asarray([-700.0, -30.0, 0.0, 19.0, 21.0, 30.0, 800.0])
    np.testing.assert_allclose(module(x), np.logaddexp(x, 0), rtol=1e-15)


def test_gradients_at_ties_are_those_of_pytorch() -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Clip", ["x", "low", "high"], ["c"]),
        helper.make_node("Clip", ["x", "low"], ["above"]),
        helper.make_node("Clip", ["x", "", "high"], ["below"]),
        helper.make_node("Sum", ["r", "c", "above", "below"], ["y"]),
    ]
    module = from_onnx(_model(nodes, [x], ["y"], {"low": np.float32(-1), "high": np.float32(1)}))
    values = np.asarray([-2.0, -1.0, 0.0, 0.5, 1.0, 3.0], np.float32)
    t = torch.tensor(values, requires_grad=True)
    clamped = (torch.clamp(t, -1, 1), torch.clamp(t, min=-1), torch.clamp(t, max=1))
    sum(clamped, torch.relu(t)).sum().backward()
    v = mm.variable("x", values)
    np.testing.assert_array_equal(mm.grad(mm.sum(module(v)), v), t.grad)


NORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "sum of squares": ("ReduceL2", {"keepdims": 1}),
    "lengths": ("LpNormalization", {"axis": 3}),
    "lengths of absolute values": ("LpNormalization", {"axis": 3, "p": 1}),
    "windows": ("LpPool", {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "windows of cubes": ("LpPool", {"kernel_shape": [2, 2], "strides": [2, 2], "p": 3}),
    "images": ("GlobalLpPool", {"p": 3}),
    "deviations": ("MeanVarianceNormalization", {}),
}


@pytest.mark.parametrize("name", NORMS)
def test_norms_of_zeros_have_no_slope(name: str) -> None:
    """The gradient of a norm at 0 is 0, as in PyTorch, not infinite."""
    operator, attributes = NORMS[name]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 1, 4, 4])
    node = helper.make_node(operator, ["x"], ["y"], **attributes)
    module = from_onnx(_model([node], [x], ["y"], {}))
    slope = mm.grad(lambda x: mm.sum(module(x) * 3.0))(mm.zeros((2, 1, 4, 4)))
    np.testing.assert_array_equal(slope, np.zeros((2, 1, 4, 4)))


WINDOWS = {"kernel_shape": [9, 9], "strides": [2, 2]}
SUMS: dict[str, tuple[str, dict[str, Any]]] = {
    "means of images": ("GlobalAveragePool", {}),
    "means of windows": ("AveragePool", WINDOWS),
    "means of windows beyond the end": ("AveragePool", WINDOWS | {"ceil_mode": 1}),
    "means of windows with gaps": ("AveragePool", WINDOWS | {"dilations": [2, 2]}),
    "norms of windows": ("LpPool", WINDOWS),
    "norms of images": ("GlobalLpPool", {}),
    "lengths": ("ReduceL2", {}),
    "responses": ("LRN", {"size": 3, "alpha": 1.0}),
    "deviations": ("MeanVarianceNormalization", {}),
}


@pytest.mark.parametrize("name", SUMS)
def test_sums_of_half_types_do_not_overflow(name: str) -> None:
    operator, attributes = SUMS[name]
    node = helper.make_node(operator, ["x"], ["y"], **attributes)
    values = np.random.default_rng(0).uniform(800, 1200, (1, 3, 24, 24)).astype(np.float16)
    results = []
    for element, dtype in ((TensorProto.FLOAT16, mm.float16), (TensorProto.DOUBLE, mm.float64)):
        x = helper.make_tensor_value_info("x", element, list(values.shape))
        result = from_onnx(_model([node], [x], ["y"], {}))(mm.asarray(values, dtype=dtype))
        assert result.dtype == dtype
        results.append(np.asarray(mm.astype(result, mm.float64)))
    np.testing.assert_allclose(results[0], results[1], rtol=3e-3, atol=3e-3)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_images_of_integers_of_another_size(mode: str, dtype: str) -> None:
    """Weights are fractions; results are rounded, and those beyond the type are its limits."""
    limits, shape = np.iinfo(dtype), (1, 2, 5, 4)
    random = np.random.default_rng(0)
    values = random.integers(max(limits.min, -(2**31)), min(limits.max, 2**31), shape, dtype)
    x = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(values.dtype), shape)
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode=mode)
    model = _model([node], [x], ["y"], {"scales": np.float32([1, 1, 2, 1.5])})
    (expected,) = ReferenceEvaluator(model).run(None, {"x": values})
    result = from_onnx(model)(values)
    assert result.dtype.name == dtype
    tolerance = 1 if limits.bits < 32 else 2**31 * 1e-6  # ties
    np.testing.assert_allclose(
        np.asarray(result, np.float64), np.asarray(expected, np.float64), rtol=0, atol=tolerance
    )


class Scores(nn.Module):
    """Words and two numbers for each sample."""

    def __init__(self) -> None:
        self.words, self.head = nn.Embedding(9, 4), nn.Dense(3)

    def __call__(self, tokens: Any, features: Any) -> Any:
        return self.head(mm.concat([mm.mean(self.words(tokens), axis=1), features], axis=1))


@pytest.mark.parametrize("names", [None, ["tokens", "numbers"]])
def test_variable_axes_of_each_input(names: Any, tmp_path: Path) -> None:
    random, module = np.random.default_rng(0), Scores()

    def inputs(samples: int, words: int) -> tuple[Any, Any]:
        tokens = random.integers(0, 9, (samples, words))
        return tokens, random.normal(size=(samples, 2)).astype(np.float32)

    model = to_onnx(
        module, tmp_path / "x.onnx", *inputs(3, 5), variable_axes={"tokens": 2}, input_names=names
    )
    shapes = [
        [d.dim_param or d.dim_value for d in x.type.tensor_type.shape.dim]
        for x in model.graph.input
    ]
    assert [x.name for x in model.graph.input] == (names or ["tokens", "features"])
    assert shapes == [["batch", "extent_1"], ["batch", 2]]
    given = inputs(4, 11)
    np.testing.assert_allclose(from_onnx(model)(*given), module(*given), rtol=1e-5)
    with pytest.raises(OptionError, match=r"'words', which is no input; the inputs are tokens, "):
        to_onnx(
            module, tmp_path / "x.onnx", *inputs(3, 5), variable_axes={"words": 2},
            input_names=names,
        )  # fmt: skip


def test_values_of_large_models_are_in_a_second_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later model replaces both files, and neither if it cannot be written."""
    monkeypatch.setattr(onnx_export, "MAX_BYTES", 0)
    path, x = tmp_path / "x.onnx", mm.random.normal(shape=(2, 40))
    for width in (30, 20):
        layer = nn.Dense(width)
        to_onnx(layer, path, x)
        assert {file.name for file in tmp_path.iterdir()} == {"x.onnx", "x.onnx.data"}
        np.testing.assert_allclose(from_onnx(path)(x), layer(x), rtol=1e-5, atol=1e-6)
    before = [file.read_bytes() for file in sorted(tmp_path.iterdir())]
    with pytest.raises(MagmathError, match="element types"):
        to_onnx(mm.sin, path, mm.astype(x, mm.bfloat16))
    assert [file.read_bytes() for file in sorted(tmp_path.iterdir())] == before


def test_large_graphs_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only values take memory, but also nodes and names."""
    monkeypatch.setattr(onnx_export, "MAX_BYTES", (1 << 20) + 4 * 41 * 30 + 1)
    path = to_onnx(nn.Dense(30), tmp_path / "x.onnx", mm.ones((1, 40)))
    assert (tmp_path / "x.onnx.data").exists()
    assert from_onnx(path)(mm.ones((1, 40))).shape == (1, 30)


def test_values_of_models_are_not_serialized_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message of 2 GB or more cannot be serialized."""
    serialize = onnx.ModelProto.SerializePartialToString

    def serialize_without_values(model: onnx.ModelProto, **options: Any) -> bytes:
        assert all(len(tensor.raw_data) < 1024 for tensor in model.graph.initializer)
        return serialize(model, **options)

    for name in ("SerializeToString", "SerializePartialToString"):
        monkeypatch.setattr(onnx.ModelProto, name, serialize_without_values)
    monkeypatch.setattr(onnx_export, "MAX_BYTES", 0)
    x = mm.ones((1, 40))
    from_onnx(to_onnx(nn.Dense(30), tmp_path / "x.onnx", x))(x)


def test_names_of_inputs_differ_from_paths(tmp_path: Path) -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            self.input, self.output = nn.Parameter(mm.ones(3) * 2), nn.Parameter(mm.ones(3))

        def __call__(self, x: Any) -> Any:
            return x * self.input + self.output

    model = to_onnx(Named(), tmp_path / "x.onnx", np.ones((2, 3), np.float32))
    assert (model.graph.input[0].name, model.graph.output[0].name) == ("input_", "output_")
    np.testing.assert_array_equal(
        from_onnx(model)(np.ones((2, 3), np.float32)), np.full((2, 3), 3.0)
    )
    with pytest.raises(OptionError, match="not those of inputs or parameters"):
        to_onnx(Named(), tmp_path / "x.onnx", np.ones((2, 3), np.float32), input_names=["input"])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the reference implementation
def test_functions_that_lose_digits_are_written_so_that_they_do_not(tmp_path: Path) -> None:
    x = np.asarray([1e-9, -1e-9, 1e-3, 0.0, 3.0, -0.7, np.inf, 50.0], np.float32)
    both = np.asarray([-np.inf, 2.0], np.float32)
    model = to_onnx(lambda x: (mm.log1p(x), mm.expm1(x / 2)), tmp_path / "x.onnx", x)
    log, exp = ReferenceEvaluator(model).run(None, {"input": x})
    np.testing.assert_allclose(log, np.log1p(x), rtol=1e-6)
    np.testing.assert_allclose(exp, np.expm1(x / 2), rtol=2e-6)
    y = np.asarray([-80.0, -20.0, -18.0, 0.5, 3.0], np.float32)
    model = to_onnx(lambda x: (f.softplus(x), mm.erfc(x)), tmp_path / "x.onnx", y)
    plus = ReferenceEvaluator(model).run(None, {"input": y})[0]
    np.testing.assert_allclose(plus, np.logaddexp(y.astype(float), 0.0), rtol=1e-6)
    y = np.asarray([-3.0, 0.0, 0.9, 1.1, 3.0, 6.0, 8.5], np.float32)
    np.testing.assert_allclose(
        ReferenceEvaluator(model).run(None, {"input": y})[1],
        torch.special.erfc(torch.asarray(y.astype(float))), rtol=2e-5,
    )  # fmt: skip
    model = to_onnx(lambda x: mm.logaddexp(x, x), tmp_path / "x.onnx", both)
    np.testing.assert_allclose(
        ReferenceEvaluator(model).run(None, {"input": both})[0], np.logaddexp(both, both), rtol=1e-6
    )


SPECIAL = [
    0.0,
    -0.0,
    0.1,
    -0.1,
    0.7,
    1.0,
    -1.0,
    2.0,
    -3.0,
    5.5,
    240.0,
    -240.0,
    np.inf,
    -np.inf,
    np.nan,
]
WRITTEN = {
    record.name: operands
    for operands, table in ((1, tables.UNARY), (2, tables.BINARY))
    for record in table
    if record.name in ELEMENTWISE and hasattr(mm, record.name) and "bitwise" not in record.name
}
"""The functions of floating point numbers that are written, and the numbers of their operands."""


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", WRITTEN)
def test_written_functions_of_special_numbers(name: str, dtype: str, tmp_path: Path) -> None:
    """Zeros, infinities, nan, quotients near whole numbers, and numbers whose squares overflow."""
    function, numbers = getattr(mm, name), np.asarray(SPECIAL, dtype)
    grid = np.meshgrid(*[numbers] * WRITTEN[name])
    operands = [x.reshape(-1) for x in grid]
    expected = np.asarray(function(*map(mm.asarray, operands)))
    model = to_onnx(function, tmp_path / "x.onnx", *operands)
    names = [x.name for x in model.graph.input]
    (values,) = ReferenceEvaluator(model).run(None, dict(zip(names, operands, strict=True)))
    is_coarse = dtype == "float64" and name in ("erf", "erfc")  # the reference has float32
    tolerance = 8 * float(np.finfo("float32" if is_coarse else dtype).eps)
    np.testing.assert_allclose(values, expected, rtol=tolerance, atol=tolerance / 8)


def test_positions_of_nearest_pixels_as_tensorflow_counts_them() -> None:
    """`tf_half_pixel_for_nn` of versions 11 and 12: the pixel that contains (i + 1/2) / scale."""
    x = np.arange(7.0, dtype=np.float32).reshape(1, 1, 7, 1)
    for extent in (2, 3, 5, 10):
        node = helper.make_node(
            "Resize", ["x", "", "", "sizes"], ["y"], mode="nearest", nearest_mode="floor",
            coordinate_transformation_mode="tf_half_pixel_for_nn",
        )  # fmt: skip
        value = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
        sizes = np.asarray([1, 1, extent, 1], np.int64)
        model = _model([node], [value], ["y"], {"sizes": sizes})
        model.opset_import[0].version = 12
        expected = np.floor((np.arange(extent) + 0.5) * 7 / extent)
        np.testing.assert_array_equal(np.asarray(from_onnx(model)(x)).reshape(-1), expected)
    attribute = next(x for x in node.attribute if x.name.startswith("coordinate"))
    attribute.s = b"of another version"
    with pytest.raises(MagmathError, match="coordinates of another version is not available"):
        from_onnx(_model([node], [value], ["y"], {"sizes": sizes}))(x)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_expm1_is_written_for_all_numbers_of_a_type(dtype: str, tmp_path: Path) -> None:
    numbers = np.concatenate([-np.geomspace(1e-3, 1e4, 60), np.geomspace(1e-3, 8, 30), [-np.inf]])
    x = numbers.astype(dtype)
    model = to_onnx(mm.expm1, tmp_path / "x.onnx", x)
    (values,) = ReferenceEvaluator(model).run(None, {"input": x})
    limit = 10 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(values, np.expm1(x.astype(np.float64)), rtol=limit)


def test_relu_of_unsigned_integers_is_written(tmp_path: Path) -> None:
    x = np.asarray([0, 3, 255], np.uint8)
    model = to_onnx(mm.relu, tmp_path / "x.onnx", x)
    np.testing.assert_array_equal(ReferenceEvaluator(model).run(None, {"input": x})[0], x)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "int16", "int32", "int64", "uint8", "float16", "float32", "float64"]
)
def test_written_operations_have_types_that_onnx_has_or_are_refused(
    dtype: str, tmp_path: Path
) -> None:
    """The checker of the standard accepts a model, or the error says that it has no operator."""
    functions: list[Any] = [
        mm.maximum, mm.add, mm.multiply, lambda x, y: mm.sort(x, axis=0), lambda x, y: mm.prod(x, axis=0),
        lambda x, y: mm.cumulative_sum(x, axis=0), lambda x, y: mm.max(x, axis=0), lambda x, y: mm.sum(x, axis=1),
        lambda x, y: mm.isfinite(x), lambda x, y: mm.where(x == y, x, y), lambda x, y: x @ y.T, lambda x, y: mm.argmax(x, axis=0),
        lambda x, y: mm.all(x, axis=0), lambda x, y: mm.concat([x, y]), lambda x, y: x[::-1], mm.less, lambda x, y: -x, lambda x, y: abs(x),
        lambda x, y: mm.round(x), lambda x, y: x // y, lambda x, y: x % y, lambda x, y: mm.pad(x, 1), lambda x, y: mm.take(x, mm.asarray([0, 1]), axis=1),
    ]  # fmt: skip
    x, y = (np.asarray([[1, 2, 3], [3, 1, 1]], dtype) + np.asarray(k, dtype) for k in (0, 1))
    written = 0
    for i, function in enumerate(functions):
        try:
            wanted = np.asarray(function(mm.asarray(x), mm.asarray(y)))
        except (MagmathError, TypeError):
            continue  # not for this type
        message, model = "", None
        try:
            model = to_onnx(function, tmp_path / "x.onnx", x, y)
        except MagmathError as error:
            message = str(error)
        if model is None:
            assert "element types" in message or "no equal" in message, (i, message)
            continue
        names = [one.name for one in model.graph.input]
        (actual,) = ReferenceEvaluator(model).run(None, dict(zip(names, (x, y), strict=True)))
        assert actual.dtype == wanted.dtype, i
        np.testing.assert_allclose(actual, wanted, rtol=2e-3, err_msg=str(i))
        written += 1
    assert written >= 8


# errors -----------------------------------------------------------------------------------------


def _one_node(operator: str, domain: str = "", **attributes: Any) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])
    return _model(
        [helper.make_node(operator, ["x"], ["y"], domain=domain, **attributes)], [x], ["y"], {}
    )


def test_errors_of_reading(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no file"):
        from_onnx(tmp_path / "missing.onnx")
    (tmp_path / "text.onnx").write_text("not a model")
    with pytest.raises(DataError, match="is no ONNX model"):
        from_onnx(tmp_path / "text.onnx")
    with pytest.raises(MagmathError, match=r"operators that magmath does not have: com\.own\.Fold"):
        from_onnx(_one_node("Fold", "com.own"))
    module = from_onnx(_one_node("Relu"))
    with pytest.raises(ShapeError, match=r"input x needs the shape \(n, 3\), was given \(2, 4\)"):
        module(np.zeros((2, 4), np.float32))
    with pytest.raises(MagmathError, match="needs the inputs x, was given 0 in order and z"):
        module(z=np.zeros((2, 3), np.float32))
    assert repr(module) == "OnnxModule(test; x: (n, 3))"


@pytest.mark.parametrize("outputs", [("", "rows"), ("last", "rows")])
def test_a_loop_of_no_step_has_no_rows(outputs: tuple[str, ...]) -> None:
    """Also if the model does not name the last state."""
    boolean, single = TensorProto.BOOL, TensorProto.FLOAT
    state, next_state, row = (
        helper.make_tensor_value_info(name, single, [2]) for name in ("state", "next", "row")
    )
    step = helper.make_tensor_value_info("step", TensorProto.INT64, [])
    goes_on, goes = (helper.make_tensor_value_info(n, boolean, []) for n in ("goes_on", "goes"))
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["goes_on"], ["goes"]),
            helper.make_node("Identity", ["state"], ["next"]),
            helper.make_node("Identity", ["state"], ["row"]),
        ],
        "body", [step, goes_on, state], [goes, next_state, row],
    )  # fmt: skip
    x = helper.make_tensor_value_info("x", single, [2])
    node = helper.make_node("Loop", ["count", "", "x"], list(outputs), body=body)
    for count in (0, 3):
        module = from_onnx(_model([node], [x], ["rows"], {"count": np.int64(count)}))
        if count:
            assert module(np.ones(2, np.float32)).shape == (3, 2)
            continue
        with pytest.raises(MagmathError, match="the results of no step"):
            module(np.ones(2, np.float32))


def test_parts_without_a_name() -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [6])
    node = helper.make_node("Split", ["x"], ["", "y", ""], axis=0)
    values = np.arange(6, dtype=np.float32)
    assert from_onnx(_model([node], [x], ["y"], {}))(values).numpy().tolist() == [2, 3]


@pytest.mark.parametrize(
    ("given", "declared"), [("int64", "int32"), ("int8", "uint8"), ("float32", "int64")]
)
def test_inputs_are_not_narrowed(given: str, declared: str) -> None:
    element = helper.np_dtype_to_tensor_dtype(np.dtype(declared))
    x = helper.make_tensor_value_info("x", element, [1])
    module = from_onnx(_model([helper.make_node("Identity", ["x"], ["y"])], [x], ["y"], {}))
    with pytest.raises(DTypeError, match=f"type {declared}, which does not hold all.*{given}"):
        module(np.ones(1, given))
    assert module(np.ones(1, "bool")).dtype.name == declared


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("shape", [(), (1,), (4,), (3, 1), (3, 4), (2, 3, 4), (1, 3, 4)])
@pytest.mark.parametrize("operator", ["LayerNormalization", "RMSNormalization"])
def test_factors_of_normalizations_broadcast(operator: str, shape: Any, dtype: Any) -> None:
    """To the whole input, as ONNX says, not only to the normalized axes."""
    random = np.random.default_rng(1)
    values = random.normal(size=(2, 3, 4)).astype(dtype)
    scale, bias = (random.normal(size=shape).astype(dtype) for _ in range(2))
    is_layer = operator.startswith("Layer")
    stored = {"scale": scale, "bias": bias} if is_layer else {"scale": scale}
    x = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(values.dtype), [2, 3, 4])
    node = helper.make_node(operator, ["x", *stored], ["y"], axis=-2)
    model = _model([node], [x], ["y"], stored)
    model.opset_import[0].version = 17 if is_layer else 23
    wide = values.astype(np.float64)
    centred = wide - wide.mean((1, 2), keepdims=True) if is_layer else wide
    wanted = centred / np.sqrt(np.square(centred).mean((1, 2), keepdims=True) + 1e-5) * scale
    wanted = wanted + bias if is_layer else wanted
    actual = from_onnx(model)(values)
    assert actual.dtype.name == np.dtype(dtype).name
    tolerance = 4 * np.finfo(dtype).eps
    np.testing.assert_allclose(actual, wanted, rtol=tolerance, atol=4 * tolerance)


@pytest.mark.parametrize("declared", ["int8", "int32", "uint8", "int64", "float16", "float64"])
def test_python_numbers_take_the_type_of_the_input(declared: str) -> None:
    element = helper.np_dtype_to_tensor_dtype(np.dtype(declared))
    x = helper.make_tensor_value_info("x", element, None)
    module = from_onnx(_model([helper.make_node("Identity", ["x"], ["y"])], [x], ["y"], {}))
    for given in (7, [[101, 7, 64]], (1, True)):
        result = module(given)
        assert result.dtype.name == declared
        np.testing.assert_array_equal(result, np.asarray(given))
    if declared == "float64":
        assert float(module(0.1)) == 0.1  # without float32 between
    elif not declared.startswith("float"):
        with pytest.raises(DTypeError, match="does not hold all numbers of the given float32"):
            module([0.5])
        if declared != "int64":
            with pytest.raises(RangeError):
                module([2**40])


def test_errors_of_writing(tmp_path: Path) -> None:
    path, x = tmp_path / "x.onnx", np.zeros((3, 3), np.float32)
    with pytest.raises(OptionError, match="needs an example"):
        to_onnx(mm.relu, path)
    with pytest.raises(MagmathError, match=r"pass variable_axes=0"):
        to_onnx(mm.linalg.inv, path, x)
    words = np.ones((2, 6, 4), np.float32)
    with pytest.raises(MagmathError, match=r"recurrent layer, .*; .* pass variable_axes=1"):
        to_onnx(mm.nn.LSTM(8), path, words, variable_axes=2)
    with pytest.raises(MagmathError, match=r"operation inv.*has no equal in ONNX"):
        to_onnx(mm.linalg.inv, path, x, variable_axes=0)
    with pytest.raises(MagmathError, match="random numbers"):
        to_onnx(lambda x: x + mm.random.normal(size=(3,)), path, x)
    with pytest.raises(OptionError, match="output_names needs 1 different names"):
        to_onnx(mm.relu, path, x, output_names=["a", "b"])
    with pytest.raises(
        MagmathError, match="depends on the extents of the inputs in an unknown way"
    ):
        to_onnx(lambda x: mm.reshape(x[: x.shape[0] // 2], (-1,)), path, x)
    assert not path.exists()


def test_without_the_package_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(
        MissingPackageError, match=r"from_onnx needs the package onnx.*magmath\[onnx\]"
    ):
        mm.interop.from_onnx("x.onnx")
