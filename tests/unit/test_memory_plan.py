"""The planned memory of programs: equal to what the workers allocate, and refused above the limit
with a batch that fits."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import start
from magmath.engine import session
from magmath.engine.programs.memory_check import need_of
from magmath.errors import MemoryLimitError

NETWORKS = {
    "lenet5": (lambda: mm.nn.zoo.lenet5(classes=10), 1, 28),
    "resnet18": (lambda: mm.nn.zoo.resnet18(classes=10, stem="small"), 3, 8),
}


def _step(name: str, batch: int) -> tuple[Any, Any, Any]:
    """A compiled training step, and its arguments."""
    make, channels, size = NETWORKS[name]
    model, optimizer = make(), mm.optim.GradientDescent(0.01)
    model.build((batch, channels, size, size))
    images = np.random.default_rng(0).normal(size=(batch, channels, size, size))

    @mm.compile
    def step(x: Any, y: Any) -> Any:
        parameters = model.trainable()
        loss, gradients = mm.value_and_grad(lambda: mm.nn.cross_entropy(model(x), y), parameters)
        optimizer.update(gradients)
        return loss

    return step, mm.asarray(images.astype("float32")), mm.asarray(np.arange(batch) % 10)


@pytest.mark.parametrize(("name", "batch"), [("lenet5", 96), ("resnet18", 12)])
def test_the_planned_peak_is_what_the_worker_allocates(name: str, batch: int) -> None:
    former, pool = session.current_engine, start("inline", 1)
    session.set_current_pool(pool)
    try:
        step, x, y = _step(name, batch)
        for _ in range(2):
            mm.evaluate(step(x, y), wait=True)
        planned = need_of(step.programs()[0].program).nbytes
        for counters in pool.stats():
            assert counters["peak"] == pytest.approx(planned, rel=0.05), counters
    finally:
        session.current_engine = former
        pool.close()


def test_a_step_over_the_limit_names_arrays_and_a_batch_that_fits() -> None:
    with mm.init(workers=0, device="cpu", memory_limit=24 << 20):
        batch = 1600
        step, x, y = _step("lenet5", batch)
        with pytest.raises(MemoryLimitError, match=r"largest arrays: .*float32.*MB") as caught:
            step(x, y)
        said = str(caught.value)
        assert "mm.remat" in said
        assert "memory_limit" in said
        match = re.search(rf"reduce the batch from {batch} to about (\d+)", said)
        fitting = int(match[1]) if match else 0
        assert fitting > batch / 16
    with mm.init(workers=0, device="cpu", memory_limit=24 << 20):
        step, x, y = _step("lenet5", fitting)
        assert np.isfinite(float(step(x, y)))


def test_a_step_over_the_limit_of_several_workers_is_refused() -> None:
    with mm.init(workers=2, launcher="threads", device="cpu", memory_limit=16 << 20):
        step, x, y = _step("lenet5", 3200)
        with pytest.raises(MemoryLimitError, match=r"the program needs .* reduce the batch from"):
            step(x, y)
        assert float(mm.sum(mm.ones((30, 30)))) == 900


def _fit(
    workers: int, limit: int, batch: int, *, streams: bool, validates: bool = True
) -> str | None:
    """Train, validate and predict under a memory limit; return the error if it does not fit."""
    images = np.random.default_rng(0).normal(size=(BATCH, 3, 16, 16)).astype("float32")
    labels = np.arange(BATCH) % 10
    launcher = "threads" if workers else "mpiexec"
    with mm.init(workers=workers, launcher=launcher, device="cpu", memory_limit=limit):
        conv, norm, relu = mm.nn.Conv2d, mm.nn.BatchNorm, mm.nn.ReLU
        layers = [[conv(16, 3, padding="same"), norm(), relu()] for _ in range(5)]
        head = [mm.nn.MaxPool2d(2), mm.nn.Flatten(), mm.nn.Dense(64), mm.nn.Dense(10)]
        module = mm.nn.Sequential(*[x for block in layers for x in block], *head)
        trainer = mm.train.Trainer(module, optimizer=mm.optim.Momentum(0.01), seed=0)
        given: tuple[Any, ...] = (images, labels)
        if streams:
            given = (mm.data.Loader((images, labels), batch_size=batch),)
        sizes = {} if streams else {"batch_size": batch}
        try:
            if validates:
                trainer.fit(*given, epochs=2, validation=(images[:40], labels[:40]), **sizes)
                assert trainer.predict(images[:batch]).shape == (batch, 10)
            else:
                trainer.fit(*given, epochs=2, **sizes)
        except MemoryLimitError as error:
            return str(error)
    return None


BATCH = 64


@settings(max_examples=6)
@given(st.integers(1_500_000, 14_000_000), st.sampled_from([0, 2]), st.booleans())
def test_training_within_a_limit_runs_or_is_refused_with_a_batch_that_runs(
    limit: int, workers: int, streams: bool
) -> None:
    """The free memory of the heap is in pieces when the training step is defined."""
    said = _fit(workers, limit, BATCH, streams=streams)
    if said is None:
        return
    assert said.startswith("the program needs"), said
    assert "largest arrays: " in said
    match = re.search(rf"reduce the batch from {BATCH} to about (\d+)", said)
    if match:
        batch = int(match[1])
        assert _fit(workers, limit, batch, streams=streams, validates=False) is None


def test_equal_arrays_are_named_once() -> None:
    with mm.init(workers=0, device="cpu", memory_limit=1 << 20):
        with pytest.raises(MemoryLimitError) as caught:
            mm.evaluate(*[mm.ones((1000, 200)) for _ in range(3)])
        assert str(caught.value).count("float32 (1000, 200)") == 1
        assert "3 × " in str(caught.value)


def test_without_a_batch_no_smaller_one_is_proposed() -> None:
    with mm.init(workers=0, device="cpu", memory_limit=1 << 20):
        x = mm.ones((1, 100))
        with pytest.raises(MemoryLimitError) as caught:
            (mm.exp(mm.reshape(x, (100, 1)) + mm.zeros((1, 4000))) @ mm.ones((4000, 1))).numpy()
        assert "reduce the batch" not in str(caught.value) or "to 0" not in str(caught.value)
        np.testing.assert_array_equal(x.numpy(), np.ones((1, 100)))


def test_the_batch_is_no_extent_of_workspaces() -> None:
    """Collective factorizations have one with a row for each worker."""
    with mm.init(workers=3, launcher="threads", threads=1, device="cpu", memory_limit=1_500_000):
        x = np.random.default_rng(0).normal(size=(500, 300)).astype(np.complex64)
        a = mm.asarray(x, layout=mm.Layout.grid((3, 1)))
        with pytest.raises(MemoryLimitError, match="uint8 .3, ") as caught:
            mm.linalg.svdvals(a).numpy()
        assert "reduce the batch from 3 " not in str(caught.value)


@pytest.mark.parametrize(("optimizer", "share"), [("sgd", 0.7), ("momentum", 2.5), ("adam", 3.5)])
def test_the_batch_is_no_extent_of_weights(optimizer: str, share: float) -> None:
    """Initial values, gradients and updates of the weights take most memory."""
    batch, weights = 8, 4 * 3072 * 256
    with mm.init(workers=0, device="cpu", memory_limit=int(share * weights)):
        network = mm.nn.Sequential(mm.nn.Dense(256, "relu"), mm.nn.Dense(10))
        trainer = mm.train.Trainer(network, optimizer=optimizer)
        images = np.zeros((batch, 3072), np.float32)
        with pytest.raises(MemoryLimitError) as caught:
            trainer.fit(images, np.arange(batch) % 10, batch_size=batch)
    match = re.search(r"reduce the batch from (\d+)", str(caught.value))
    assert match is None or int(match[1]) == batch, caught.value
