"""Integer labels of losses: out of range, ignored, and of types without the numbers of all
classes."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

import magmath as mm
from engines import current
from magmath import nn
from magmath.errors import DataError, PositionError, ShapeError

SCORES = np.random.default_rng(0).normal(size=(6, 3))
KINDS = [("inline", 1), ("shared", 2)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[0])
@pytest.mark.parametrize("label", [3, 5, -1, -100])
@pytest.mark.parametrize("dtype", [np.int64, np.int8])
def test_the_loss_of_a_label_out_of_range_is_nan_if_it_is_not_known(
    label: int, dtype: type, kind: tuple[str, int]
) -> None:
    labels = np.array([0, 1, 2, label, 0, 1], dtype)
    with current(*kind):
        for loss in (nn.cross_entropy, nn.hinge):
            each = mm.compile(partial(loss, reduction="none"))
            losses = each(mm.asarray(SCORES), mm.asarray(labels)).numpy()
            assert np.flatnonzero(np.isnan(losses)).tolist() == [3]
            assert np.isnan(float(mm.compile(loss)(mm.asarray(SCORES), mm.asarray(labels))))
        actual = nn.cross_entropy(mm.asarray(SCORES), mm.asarray(labels), ignore_index=label)
        known = torch.nn.functional.cross_entropy(
            torch.tensor(SCORES), torch.tensor(labels.astype(np.int64)), ignore_index=label
        )
        np.testing.assert_allclose(float(actual), known.item(), rtol=1e-12)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("label", [3, -1])
def test_a_known_label_out_of_range_is_an_error(label: int, workers: int) -> None:
    labels = np.array([0, 1, 2, label, 0, 1])
    with mm.init(workers, launcher="threads", device="cpu"):
        for loss in (nn.cross_entropy, nn.hinge):
            for given in (labels, mm.asarray(labels), labels.tolist()):
                with pytest.raises(PositionError, match=f"go from 0 to 2, was given {label}"):
                    loss(mm.asarray(SCORES), given)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[0])
@pytest.mark.parametrize("label", [3, -1, -100])
def test_the_gradient_of_a_label_out_of_range_is_nan(label: int, kind: tuple[str, int]) -> None:
    """So that a compiled step shows the mistake; that of an ignored one is 0."""
    labels = np.array([0, 1, 2, label, 0, 1])
    with current(*kind):
        scores = mm.asarray(SCORES)
        for loss in (nn.cross_entropy, nn.hinge):
            slope = mm.compile(mm.grad(loss))(scores, mm.asarray(labels)).numpy()
            assert np.isnan(slope).any(axis=1).tolist() == [i == 3 for i in range(6)]
        ignored = nn.cross_entropy(scores, mm.asarray(labels), ignore_index=label)
        other = torch.tensor(SCORES, requires_grad=True)
        torch.nn.functional.cross_entropy(
            other, torch.tensor(labels), ignore_index=label
        ).backward()
        np.testing.assert_allclose(
            mm.grad(ignored, scores).numpy(), other.grad.numpy(), rtol=1e-10, atol=1e-15
        )


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.int64])
def test_more_classes_than_the_type_of_the_labels_has_numbers(dtype: type) -> None:
    labels = np.array([1, 2, 0, np.iinfo(dtype).max % 300], dtype)
    scores = np.random.default_rng(1).normal(size=(4, 1000))
    known = torch.nn.functional.cross_entropy(
        torch.tensor(scores), torch.tensor(labels.astype(np.int64))
    )
    actual = nn.cross_entropy(mm.asarray(scores), mm.asarray(labels))
    np.testing.assert_allclose(float(actual), known.item(), rtol=1e-12)
    hot = nn.functional.one_hot(mm.asarray(labels), 1000).numpy()
    np.testing.assert_array_equal(hot, np.eye(1000)[labels])
    known = torch.nn.functional.multi_margin_loss(
        torch.tensor(scores), torch.tensor(labels.astype(np.int64))
    )
    actual = nn.hinge(mm.asarray(scores), mm.asarray(labels))
    np.testing.assert_allclose(float(actual), known.item(), rtol=1e-12)


@pytest.mark.parametrize("kind", [*KINDS, ("messages", 3)], ids=lambda kind: kind[0])
@pytest.mark.parametrize("dtype", [np.int8, np.int64])
@pytest.mark.parametrize("index", [-1, -9, -10, -128, 9, 100])
def test_an_index_outside_of_the_table_is_named(
    index: int, dtype: type, kind: tuple[str, int]
) -> None:
    """Also a negative one, as in PyTorch; indexing arrays counts negative ones from the end."""
    with current(*kind):
        weight = np.random.default_rng(3).normal(size=(9, 2))
        for layout in (None, mm.Layout.split(0), mm.Layout.split(1)):
            table, good = mm.asarray(weight, layout=layout), np.array([[0, 8, 3], [1, 1, 2]], dtype)
            look_up = nn.functional.embedding
            for call in (look_up, mm.compile(look_up)):
                np.testing.assert_array_equal(call(mm.asarray(good), table).numpy(), weight[good])
                bad = good.copy()
                bad[1, 1] = index
                with pytest.raises(IndexError, match=f"index {index} is out of range"):
                    call(mm.asarray(bad), table).numpy()
            np.testing.assert_array_equal(table[mm.asarray(-1 - good)].numpy(), weight[-1 - good])


@pytest.mark.parametrize("label", [3, -1])
@pytest.mark.parametrize("space", [(), (2,), (4, 4)])
@pytest.mark.parametrize("streams", [False, True])
def test_fit_and_evaluate_refuse_labels_out_of_range(
    streams: bool, space: tuple[int, ...], label: int
) -> None:
    """For outputs of any number of dimensions; predictions do not use them."""
    x = np.zeros((4, 1, *space), np.float32)
    y = np.arange(4 * int(np.prod(space))).reshape(4, *space) % 3
    wrong = y.copy()
    wrong[2] = label
    with current("inline"):
        layer = [nn.Dense(3), nn.Conv1d(3, 1), nn.Conv2d(3, 1)][len(space)]
        net = nn.NeuralNetwork([layer])

        def given(targets: np.ndarray) -> tuple[object, ...]:
            return (mm.data.Loader((x, targets), 4),) if streams else (x, targets)

        for operation, call in (("fit", net.fit), ("evaluate", net.evaluate)):
            with pytest.raises(DataError, match=rf"{operation}: labels must be in 0 … 2.*{label}"):
                call(*given(wrong))
        outputs = net.predict(given(wrong)[0])
        np.testing.assert_array_equal(outputs, net.predict(x))
        net.fit(*given(y))


@pytest.mark.parametrize("space", [(), (2,), (4, 4)])
def test_targets_that_are_no_labels(space: tuple[int, ...]) -> None:
    x, shape = np.zeros((4, 1, *space), np.float32), (4, *space)
    with current("inline"):
        net = nn.NeuralNetwork([[nn.Dense(3), nn.Conv1d(3, 1), nn.Conv2d(3, 1)][len(space)]])
        extents = ", ".join(["N", "3", *map(str, space)])
        for targets, message in (
            (np.ones(shape), rf"must be integers, or \({extents}\) probabilities.*float64"),
            (np.ones((4, 1, *space), int), rf"must be {len(shape)}-D, .* give labels\[:, 0\]"),
            (np.ones((4, 3, *space)), "have sum 1 for each sample"),
        ):
            with pytest.raises(DataError, match=message):
                net.evaluate(x, targets)
        assert np.isfinite(net.evaluate(x, np.full((4, 3, *space), 1 / 3))["loss"])


@pytest.mark.parametrize("shape", [(8,), (8, 1), (8, 3)])
def test_outputs_without_classes_are_left_to_the_loss(shape: tuple[int, ...]) -> None:
    """An output for each sample has neither labels nor probabilities."""

    class Price(nn.Module):
        def __init__(self) -> None:
            self.dense = nn.Dense(1)

        def __call__(self, x: mm.Array) -> mm.Array:
            return self.dense(x)[:, 0]

    with current("inline"):
        for dtype in (np.float32, np.int64):
            with pytest.raises(ShapeError, match=r"outputs must be \(N, classes\), was given"):
                mm.train.Trainer(Price()).fit(np.ones((8, 4), np.float32), np.ones(shape, dtype))
