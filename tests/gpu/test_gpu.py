"""The same programs with `device="cuda"`; skipped without a GPU.

Run with `make gpu` (or `pytest tests/gpu`) on a machine that has one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import engine_of
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
