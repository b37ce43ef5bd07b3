"""Training with batches of a loader: the same numbers as with arrays on the workers."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath.data import Loader, load, normalize, random_crop, random_flip
from magmath.errors import DataError, MagmathError
from magmath.nn.abstract import AbstractArray
from magmath.train.feeds import StreamFeed

IMAGES = np.random.default_rng(2).random((50, 1, 6, 6), np.float32)
LABELS = np.random.default_rng(3).integers(0, 4, 50)


def trainer(optimizer: Any = "adam", **options: Any) -> mm.train.Trainer:
    layers = [
        mm.nn.Flatten(),
        mm.nn.Dense(8, activation="tanh"),
        mm.nn.Dropout(0.2),
        mm.nn.Dense(4),
    ]
    return mm.train.Trainer(mm.nn.Sequential(*layers), optimizer=optimizer, seed=5, **options)


@pytest.mark.parametrize(("kind", "workers"), [("inline", 0), ("shared", 2), ("messages", 3)])
def test_a_loader_trains_as_arrays_do(kind: str, workers: int) -> None:
    with current(kind, max(workers, 1)):
        schedule = mm.optim.schedules.Cosine(0.01, 12, per="step")
        loader = Loader((IMAGES, LABELS), 16, shuffle=False, threads=2)
        streamed = trainer(mm.optim.Adam(schedule))
        history = streamed.fit(loader, epochs=3, validation=Loader((IMAGES, LABELS), 20))
        resident = trainer(mm.optim.Adam(schedule))
        expected = resident.fit(
            IMAGES, LABELS, batch_size=16, shuffle=False, epochs=3, validation=(IMAGES, LABELS)
        )
        assert len(history.step_losses) == 12
        np.testing.assert_allclose(history.step_losses, expected.step_losses, rtol=1e-5)
        np.testing.assert_allclose(history.loss, expected.loss, rtol=1e-5)
        assert history.accuracy == pytest.approx(expected.accuracy)
        np.testing.assert_allclose(history.validation_loss, expected.validation_loss, rtol=1e-5)
        assert history.validation_accuracy == pytest.approx(expected.validation_accuracy)
        again = streamed.evaluate(Loader((IMAGES, LABELS), 20, shuffle=False))
        assert again["loss"] == pytest.approx(resident.evaluate(IMAGES, LABELS)["loss"], rel=1e-5)
        outputs = streamed.predict(Loader((IMAGES, LABELS), 20, shuffle=False))
        np.testing.assert_allclose(
            outputs, np.asarray(resident.predict(IMAGES)), rtol=1e-4, atol=1e-6
        )


@pytest.mark.parametrize("threads", [0, 2])
def test_outputs_are_in_the_order_of_the_source(threads: int) -> None:
    """Also if the loader shuffles the samples of an epoch, as it does by default."""
    with current("inline"):
        network = trainer()
        loader = Loader((IMAGES, LABELS), 16, threads=threads)
        expected = np.asarray(network.predict(IMAGES))
        np.testing.assert_allclose(network.predict(loader), expected, rtol=1e-4, atol=1e-6)
        given = list(loader.in_order())
        np.testing.assert_array_equal(np.concatenate([labels for _, labels in given]), LABELS)
        np.testing.assert_array_equal(np.concatenate([images for images, _ in given]), IMAGES)


@pytest.mark.parametrize("batch_size", [7, 16, 32, 50])
@pytest.mark.parametrize("threads", [0, 2])
def test_no_sample_is_left_out_without_training(batch_size: int, threads: int) -> None:
    """`drop_last` concerns the epochs of `fit` only."""
    with current("inline"):
        network = trainer()
        loader = Loader((IMAGES, LABELS), batch_size, threads=threads, drop_last=True)
        outputs = np.asarray(network.predict(IMAGES))
        np.testing.assert_allclose(network.predict(loader), outputs, rtol=1e-4, atol=1e-6)
        expected = pytest.approx(network.evaluate(IMAGES, LABELS), rel=1e-5)
        assert network.evaluate(loader) == expected
        assert [len(y) for _, y in loader.epoch(0)] == [batch_size] * (50 // batch_size)
        history = trainer("sgd").fit(loader, validation=loader)
        assert len(history.step_losses) == 50 // batch_size


def test_counted_metrics_are_of_the_whole_epoch() -> None:
    with current("inline"):
        metrics = ["f1", "confusion_matrix"]
        loader = Loader((IMAGES, LABELS), 10, shuffle=False)
        history = trainer("sgd", metrics=metrics).fit(loader).records[0].metrics
        expected = trainer("sgd", metrics=metrics).fit(IMAGES, LABELS, batch_size=10, shuffle=False)
        assert np.sum(history["confusion_matrix"]) == 50
        assert history == expected.records[0].metrics


def test_augmented_training_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    def fit(folder: Path | None, epochs: int) -> list[float]:
        transforms = [random_crop(1), random_flip(), normalize(0.5, 0.3)]
        loader = Loader((IMAGES, LABELS), 16, transforms=transforms, seed=9)
        options: dict[str, Any] = {} if folder is None else {"checkpoint": folder, "resume": True}
        return trainer().fit(loader, epochs=epochs, **options).loss

    with current("inline"):
        whole = fit(None, 4)
        fit(tmp_path, 2)
        assert fit(tmp_path, 4) == whole


def test_digits_are_learnt_from_a_loader() -> None:
    digits = load("digits")
    with current("shared", 2):
        net = mm.nn.NeuralNetwork(
            [mm.nn.Flatten(), mm.nn.Dense(64, activation="relu"), mm.nn.Dense(10)],
            optimizer=mm.optim.Adam(1e-2),
            seed=1,
        )
        loader = Loader(
            (digits.train_images, digits.train_labels), 64, transforms=[normalize(0.3, 0.4)]
        )
        test = Loader((digits.test_images, digits.test_labels), 100)
        history = net.fit(loader, epochs=16, validation=test)
        assert history.validation_accuracy[-1] > 0.9
        assert net.input_shape == (1, 8, 8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t, x: t.fit(x, LABELS), "a Loader contains the targets"),
        (lambda t, x: t.fit(x, batch_size=8), "pass them to the Loader"),
        (lambda t, x: t.fit(x, shuffle=False), "pass them to the Loader"),
        (lambda t, x: t.fit(Loader((IMAGES, LABELS + 1), 8)), "labels must be in 0 … 3"),
        (lambda t, x: t.fit(x, validation=IMAGES), "samples, targets, weights. or a Loader"),
        (lambda t, x: t.fit(IMAGES), "fit: needs targets"),
        (lambda t, x: t.evaluate(IMAGES), "evaluate: needs targets"),
    ],
)
def test_errors(call: Any, message: str) -> None:
    with current("inline"), pytest.raises((DataError, MagmathError), match=message):
        call(trainer(), Loader((IMAGES, LABELS), 16))


def test_training_after_an_interrupted_epoch_is_whole() -> None:
    def stop_in_second_batch(images: Any, random: np.random.Generator) -> Any:
        if stopping and (images == IMAGES[20]).all((1, 2, 3)).any():
            raise KeyboardInterrupt
        return images

    with current("inline"):
        schedule = mm.optim.schedules.Cosine(0.01, 100, per="step")
        model = trainer(mm.optim.Adam(schedule))
        loader = Loader(
            (IMAGES, LABELS), 16, shuffle=False, threads=0, transforms=[stop_in_second_batch]
        )
        stopping = True
        with pytest.raises(KeyboardInterrupt):
            model.fit(loader, epochs=1)
        stopping = False
        assert len(model.fit(loader, epochs=1).step_losses) == 4


def test_labels_of_a_loader_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In each call of `fit`, unless a callback gives the loader other labels."""
    checked: list[Any] = []
    monkeypatch.setattr(
        "magmath.train.feeds.check_labels", lambda *given: checked.append(given[1:])
    )
    loader = Loader((IMAGES, LABELS), 25)
    others = LABELS // 2

    def assign(record: Any) -> None:
        if record.epoch == 2:
            loader.source.labels = others  # type: ignore[misc]

    with current("inline"):
        network = trainer()
        for calls in (1, 2):
            network.fit(loader, epochs=3)
            assert checked == [(4, 0, 3)] * calls
        checked.clear()
        network.fit(loader, epochs=4, callbacks=[assign])
        assert checked == [(4, 0, 3), (4, 0, 1)]
        network.loss = "mean_squared_error"
        network.fit(Loader((IMAGES, np.zeros((50, 4))), 25))
        assert len(checked) == 2


@pytest.mark.parametrize("event", ["on_epoch_begin", "on_epoch_end"])
@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8", "uint64"])
def test_labels_that_a_callback_gives_a_loader_are_checked(dtype: str, event: str) -> None:
    loader = Loader((IMAGES, LABELS.astype(dtype)), 25)

    class Assigns(mm.train.Callback):
        def apply(self, trainer: Any, *_: Any) -> None:
            if trainer.epochs_done == 1:
                loader.source.labels = LABELS.astype(dtype) + 1  # type: ignore[misc]

    setattr(Assigns, event, Assigns.apply)
    with current("inline"), pytest.raises(DataError, match=r"in 0 … 3 .* from 1 to 4"):
        trainer().fit(loader, epochs=3, callbacks=[Assigns()])


@pytest.mark.parametrize("targets", [np.zeros(400_000, np.int8), np.zeros((400_000, 4))])
def test_targets_of_a_loader_are_checked_without_a_copy(targets: Any) -> None:
    with current("inline"):
        loader = Loader((np.zeros((400_000, 1), np.float32), targets), 32)
        feed = StreamFeed("fit", loader, mm.float32)
        tracemalloc.start()
        try:
            feed.check_classes("fit", AbstractArray((2, 4), mm.float32))
            assert tracemalloc.get_traced_memory()[1] < 100_000
        finally:
            tracemalloc.stop()


class Rows:
    """A source of the first `count` rows of a table, and their means."""

    def __init__(self) -> None:
        self.table = np.random.default_rng(4).normal(size=(64, 16)).astype(np.float32)
        self.count = 64

    @property
    def labels(self) -> Any:
        return self.table[: self.count].mean(axis=1, keepdims=True)

    def read(self, indices: Any, random: np.random.Generator) -> Any:
        return self.table[indices]


class Means(mm.nn.Module):
    """The mean of the columns, times a parameter."""

    def __init__(self) -> None:
        self.factor = mm.nn.Parameter(1.0, (1,))

    def __call__(self, x: mm.Array) -> mm.Array:
        return mm.mean(x, axis=1, keepdims=True) * self.factor


def of_means() -> mm.train.Trainer:
    rule = mm.optim.GradientDescent(0.0)
    return mm.train.Trainer(Means(), "mean_squared_error", rule, metrics=["mean_squared_error"])


@pytest.mark.parametrize("calls", [1, 5])
@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2)])
def test_a_loader_may_change_between_epochs(
    kind: str, workers: int, threads: int, calls: int
) -> None:
    """Its batch size, the shape that its transforms give, and the number of samples."""
    changes = [(8, 16, 64), (16, 16, 64), (16, 24, 64), (8, 16, 50), (8, 16, 64)]
    rows = Rows()
    width = 8
    loader = Loader(
        rows, 16, shuffle=False, threads=threads, transforms=[lambda x, _: x[:, :width]]
    )

    class Changes(mm.train.Callback):
        def on_epoch_begin(self, trainer: Any, epoch: int) -> None:
            nonlocal width
            width, loader.batch_size, rows.count = changes[epoch]

    expected = [
        np.mean((rows.table[:n, :w].mean(axis=1) - rows.table[:n].mean(axis=1)) ** 2)
        for w, _, n in changes
    ]
    with current(kind, workers):
        trained = of_means()
        histories = [
            trained.fit(loader, epochs=5 // calls, callbacks=[Changes()]) for _ in range(calls)
        ]
        for name in ("loss", "mean_squared_error"):
            found = [value for history in histories for value in history.metric(name)]
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-12)
        assert sum(len(history.step_losses) for history in histories) == sum(
            -(-n // batch) for _, batch, n in changes
        )


@pytest.mark.parametrize("width", [4, 12])
def test_the_batches_of_an_epoch_have_one_shape(width: int) -> None:
    widths = {False: 8, True: width}
    is_last = False
    loader = Loader(Rows(), 16, threads=0, transforms=[lambda x, _: x[:, : widths[is_last]]])

    class Changes(mm.train.Callback):
        def on_step_end(self, trainer: Any, done: int, loss: float, speed: float) -> None:
            nonlocal is_last
            is_last = done == 3

    with current("inline"):
        message = rf"float32 \({width},\), float32 \(1,\), the first .* is float32 \(8,\)"
        with pytest.raises(DataError, match=message):
            of_means().fit(loader, callbacks=[Changes()])
