"""The same programs with `device="cuda"`; skipped without a GPU.

Run with `make gpu` (or `pytest tests/gpu`) on a machine that has one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import engine_of
from magmath.executor.fused_kernels import FusedKernel
from operation_bodies import check_close, computed, reference
from operation_table import FOLDED, ROWS, cases

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA device, this machine has none"
)


TABLE = {**ROWS, **FOLDED}
ON_CPU_ONLY = {"uint16", "uint32", "uint64"}  # torch stores them, and hardly computes with them


@pytest.fixture
def gpu() -> Iterator[None]:
    with mm.init(workers=0, device="cuda"):
        yield


@pytest.mark.usefixtures("gpu")
def test_arrays_live_on_the_gpu() -> None:
    x = mm.ones((3, 4)) + 1
    assert x.device == "cuda"
    np.testing.assert_array_equal(np.asarray(x), np.full((3, 4), 2, dtype=np.float32))


@pytest.mark.usefixtures("gpu")
def test_files_and_profiles(tmp_path: Path) -> None:
    values = np.arange(48, dtype="float32").reshape(6, 8)
    for name in ("a.npy", "a.csv"):
        mm.save(tmp_path / name, mm.asarray(values))
        back = mm.load(tmp_path / name)
        assert back.device == "cuda"
        with mm.profile() as profile:
            np.testing.assert_array_equal(np.asarray(back + 1), values + 1)
        assert profile.total.measured is not None
        assert profile.total.measured > 0


@pytest.mark.parametrize("name", TABLE)
@given(data=st.data())
@settings(max_examples=4, suppress_health_check=list(HealthCheck))
def test_every_operation_agrees_with_numpy(name: str, data: st.DataObject) -> None:
    for dtype in sorted({*TABLE[name].dtypes} - ON_CPU_ONLY):
        case = data.draw(cases(TABLE[name], dtype))
        result = computed(engine_of("gpu"), name, case)
        if name == "sum_and_squares":  # from moments in float32
            np.testing.assert_allclose(result, reference(name, case), rtol=1e-5, atol=1e-5)
        else:
            check_close(result, reference(name, case), (name, case))


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_expression(dtype: str) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((37, 53), dtype=np.float32), rng.random((53, 29), dtype=np.float32)
    x, w = mm.asarray(a, dtype=dtype), mm.asarray(b, dtype=dtype)
    y = mm.relu(x @ w - 10.0)
    tolerance = {"float32": 1e-4, "float64": 1e-4}.get(dtype, 0.2)
    np.testing.assert_allclose(np.asarray(y), np.maximum(a @ b - 10, 0), atol=tolerance)


@pytest.mark.usefixtures("gpu")
def test_reductions_and_shapes() -> None:
    values = np.random.default_rng(1).standard_normal((5, 6, 7))
    x = mm.asarray(values)
    np.testing.assert_allclose(np.asarray(mm.sum(x, axis=(0, 2))), values.sum((0, 2)))
    np.testing.assert_allclose(np.asarray(mm.max(x, axis=1)), values.max(1))
    np.testing.assert_allclose(np.asarray(mm.permute_dims(x, (2, 0, 1))[1:, ::2]),
                               values.transpose(2, 0, 1)[1:, ::2])  # fmt: skip


def test_random_numbers_equal_the_cpu() -> None:
    drawn = {}
    for device in ("cpu", "cuda"):
        with mm.init(workers=0, device=device, seed=5):
            drawn[device] = np.asarray(mm.random.uniform(0, 1, (1000,)))
    np.testing.assert_array_equal(drawn["cpu"], drawn["cuda"])


@pytest.mark.parametrize("workers", [0, 2])
def test_training_equals_the_cpu(workers: int) -> None:
    """Two workers share the GPU where there is one only."""
    digits = mm.data.load("digits")
    losses = {}
    for device in ("cpu", "cuda"):
        with mm.init(workers=workers, device=device, seed=3):
            net = mm.nn.NeuralNetwork(
                [mm.nn.Flatten(), mm.nn.Dense(64, activation="relu"), mm.nn.Dense(10)],
                optimizer=mm.optim.Adam(1e-3),
            )
            history = net.fit(digits.train_images, digits.train_labels, batch_size=64, epochs=3)
            losses[device] = history.loss
    np.testing.assert_allclose(losses["cpu"], losses["cuda"], rtol=1e-3)


@pytest.mark.usefixtures("gpu")
def test_steady_state_allocates_nothing() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((256, 20), dtype=np.float32), rng.integers(0, 4, 256)
    net = mm.nn.NeuralNetwork([mm.nn.Dense(16, activation="relu"), mm.nn.Dense(4)])
    net.fit(x, y, batch_size=32, epochs=1)
    before = torch.cuda.memory_reserved()
    net.fit(x, y, batch_size=32, epochs=3)
    assert torch.cuda.memory_reserved() == before


@pytest.mark.parametrize("shape", [(1, 9), (9, 1), (40, 33), (3000, 700), (700, 3000), (20_000, 3)])
def test_realignment(shape: tuple[int, int]) -> None:
    from magmath.kernels.realignment import shift_left, shift_right

    rows, columns = shape
    matrix = torch.randn(shape, device="cuda")
    buffer = torch.empty(rows * (columns + 1), device="cuda")
    buffer[: rows * columns] = matrix.reshape(-1)
    shift_right(buffer, rows, columns)
    wide = buffer.view(rows, columns + 1)
    assert torch.equal(wide[:, 1:], matrix)
    assert (wide[:, 0] == 1).all()
    shift_left(buffer, rows, columns)
    assert torch.equal(buffer[: rows * columns].view(shape), matrix)


@pytest.mark.usefixtures("gpu")
def test_an_index_out_of_range_is_an_error_and_the_gpu_goes_on() -> None:
    x, i = mm.asarray([1.0, 2.0]), mm.asarray([0, 1])
    pick = mm.compile(lambda x, at: mm.sum(x[at] * 2))
    for bad in (i + 1, mm.asarray(2), -i - 2):
        with pytest.raises(IndexError, match=r"is out of range for extent 2 \(axis 0\)"):
            x[bad].numpy()
    for at in (2, -3):
        with pytest.raises(IndexError, match=r"is out of range for extent 2 \(axis 0\)"):
            pick(x, mm.asarray(at)).numpy()
    assert [float(pick(x, mm.asarray(at))) for at in (0, 1, -1, -2)] == [2.0, 4.0, 4.0, 2.0]


@pytest.mark.usefixtures("gpu")
def test_evaluate_waits_for_the_gpu() -> None:
    x = mm.random.normal(shape=(4096, 4096))
    for _ in range(3):
        x = x @ x / 4096
    mm.evaluate(x, wait=True)
    assert torch.cuda.current_stream().query()


@pytest.mark.usefixtures("gpu")
def test_recorded_steps_compute_what_others_do() -> None:
    """Steps that run often are recorded as graphs; new numbers, arrays and random numbers count."""
    rng = np.random.default_rng(0)
    w = mm.variable("w", rng.random((20, 20), dtype=np.float32))
    counterpart = w.numpy().copy()

    @mm.compile
    def step(x: mm.Array, rate: float) -> mm.Array:
        y = mm.tanh(x @ w)
        w.assign(w - rate * (x.T @ y))
        return mm.sum(y, axis=0)

    for i in range(20):
        x, rate = rng.random((8, 20), dtype=np.float32), 0.01 / (i + 1)
        result = step(mm.asarray(x), rate).numpy()
        y = np.tanh(x @ counterpart)
        counterpart -= rate * (x.T @ y)
        np.testing.assert_allclose(result, y.sum(0), rtol=1e-4)
    np.testing.assert_allclose(w.numpy(), counterpart, rtol=1e-4, atol=1e-5)


def test_random_sequences_equal_the_cpu() -> None:
    drawn = {}
    for device in ("cpu", "cuda"):
        with mm.init(workers=0, device=device, seed=5):
            draw = mm.compile(lambda: mm.random.uniform(0, 1, (50,)))
            values = [draw().numpy() for _ in range(12)]
            drawn[device] = np.stack([*values, mm.random.normal(0, 1, (50,)).numpy()])
    np.testing.assert_array_equal(drawn["cpu"], drawn["cuda"])


TWINS: dict[str, Callable[[], mm.nn.Module]] = {
    "dropout": lambda: mm.nn.Sequential(
        mm.nn.Flatten(), mm.nn.Dense(32, activation="relu"), mm.nn.Dropout(0.3), mm.nn.Dense(10)
    ),
    "lenet5": mm.nn.zoo.lenet5,
    "resnet20": lambda: mm.nn.zoo.resnet20(width=4),
    "embedding": lambda: mm.nn.Sequential(
        mm.nn.Lambda(lambda x: mm.astype(mm.clip(mm.abs(x[:, 0, 0]) * 9, 0, 29), mm.int64)),
        mm.nn.Embedding(30, 8), mm.nn.LSTM(12), mm.nn.Lambda(lambda x: x[0][:, -1]), mm.nn.Dense(10),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TWINS)
def test_networks_train_as_on_the_cpu(name: str) -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((96, 1, 28, 28), dtype=np.float32)
    y = rng.integers(0, 10, 96)
    losses = {}
    for device in ("cpu", "cuda"):
        with mm.init(workers=0, device=device, seed=3):
            trainer = mm.train.Trainer(TWINS[name](), optimizer=mm.optim.Adam(1e-3), seed=4)
            losses[device] = trainer.fit(x, y, batch_size=16, epochs=4).loss
    np.testing.assert_allclose(losses["cpu"], losses["cuda"], rtol=5e-3)


@pytest.mark.usefixtures("gpu")
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fused_kernels_give_equal_bits(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the kernels that torch has for single operations; only such kernels are used."""
    rng = np.random.default_rng(1)

    def chain(x: mm.Array, y: mm.Array) -> mm.Array:
        a = mm.sqrt(x * x + y * y) / (mm.abs(y) + 1.5)
        return mm.tanh(mm.exp(-a) * x - mm.relu(y)) + mm.maximum(x, 0.25) * mm.where(x > y, x, a)

    checked: list[bool] = []

    def noted(self: FusedKernel, compute: Callable[[], object]) -> bool:
        checked.append(original(self, compute))
        assert checked[-1], self.source
        return checked[-1]

    original = FusedKernel.verify
    monkeypatch.setattr(FusedKernel, "verify", noted)
    arrays = [mm.asarray(rng.standard_normal((300, 70)), dtype=dtype) for _ in range(2)]
    compiled = mm.compile(chain)
    first = compiled(*arrays).numpy()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not checked:
        np.testing.assert_array_equal(compiled(*arrays).numpy(), first)
        time.sleep(0.02)
    assert checked
    for _ in range(3):
        np.testing.assert_array_equal(compiled(*arrays).numpy(), first)
