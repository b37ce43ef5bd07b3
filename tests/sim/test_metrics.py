"""Metrics are those of scikit-learn, of one batch and of many, on any number of workers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as counterparts

import magmath as mm
from engines import current
from magmath.errors import DTypeError, MagmathError, ShapeError
from magmath.nn import metrics
from magmath.train.metric_choice import metric_functions

POOLS = [("inline", 1), ("shared", 2), ("messages", 4)]
CLASSES = 7
ALL = list(range(CLASSES))

Metric = Callable[[Any, Any], Any]


def ratio(name: str, average: Any) -> tuple[Metric, Metric]:
    theirs = {
        "precision": counterparts.precision_score, "recall": counterparts.recall_score, "f1": counterparts.f1_score
    }[name]  # fmt: skip
    labels = ALL if average is None else None
    return (
        metrics.class_ratio(name, average),  # type: ignore[arg-type]
        lambda y, t: theirs(
            t, np.argmax(y, axis=1), average=average, labels=labels, zero_division=0
        ),
    )


CASES: dict[str, tuple[Metric, Metric]] = {
    "accuracy": (metrics.METRICS["accuracy"],
                 lambda y, t: counterparts.accuracy_score(t, np.argmax(y, axis=1))),
    "confusion_matrix": (metrics.METRICS["confusion_matrix"],
                         lambda y, t: counterparts.confusion_matrix(t, np.argmax(y, axis=1), labels=ALL)),
    **{f"top {k}": (metrics.top_k(k),
                    lambda y, t, k=k: counterparts.top_k_accuracy_score(t, y, k=k, labels=ALL))
       for k in (1, 2, 5)},
    **{f"{name}, {average}": ratio(name, average)
       for name in ("precision", "recall", "f1") for average in ("micro", "macro", None)},
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
@pytest.mark.parametrize(("kind", "workers"), POOLS)
@settings(max_examples=7)
@given(seed=st.integers(0, 10**6), samples=st.integers(1, 60), ties=st.booleans())
def test_classes_are_judged_as_by_scikit_learn(
    kind: str, workers: int, seed: int, samples: int, ties: bool
) -> None:
    """Also where classes are missing; and for batches whose counts are summed."""
    draw = np.random.default_rng(seed)
    outputs = (
        draw.integers(0, 4, (samples, CLASSES)) / 2
        if ties
        else draw.normal(size=(samples, CLASSES))
    )
    labels = draw.integers(0, draw.integers(1, CLASSES + 1), samples)
    cut = samples // 3
    with current(kind, workers):
        y = mm.asarray(outputs.astype(np.float32), layout=mm.Layout.split(0))
        t = mm.asarray(labels)
        actual = {}
        for name, (ours, _) in CASES.items():
            parts = [ours.counts(y[s], t[s]) for s in (slice(0, cut), slice(cut, None))]
            sums = [a + b for a, b in zip(*parts, strict=True)]
            actual[name] = (ours(y, t), ours.result(*sums))
        mm.evaluate(*itertools.chain(*actual.values()))  # as one program
        for name, (_, theirs) in CASES.items():
            expected = theirs(outputs.astype(np.float32), labels)
            for value in actual[name]:
                np.testing.assert_allclose(
                    value.numpy(), expected, rtol=1e-12, atol=1e-12, err_msg=name
                )


@pytest.mark.parametrize("name", ["mean_absolute_error", "mean_squared_error"])
@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_errors_are_those_of_scikit_learn(name: str, kind: str, workers: int) -> None:
    draw = np.random.default_rng(0)
    outputs, targets = draw.normal(size=(2, 41, 3))
    with current(kind, workers):
        y, t = mm.asarray(outputs), mm.asarray(targets, layout=mm.Layout.split(0))
        expected = getattr(counterparts, name)(targets, outputs)
        assert float(getattr(metrics, name)(y, t)) == pytest.approx(expected, rel=1e-12)
        metric = metrics.METRICS[name]
        sums = [
            a + b
            for a, b in zip(metric.counts(y[:9], t[:9]), metric.counts(y[9:], t[9:]), strict=True)
        ]
        assert float(metric.result(*sums)) == pytest.approx(expected, rel=1e-12)


def test_functions_are_the_metrics_of_the_table() -> None:
    draw = np.random.default_rng(2)
    with current("inline"):
        y, t = mm.asarray(draw.normal(size=(30, 6))), mm.asarray(draw.integers(0, 6, 30))
        named = {
            "accuracy": metrics.accuracy, "top_5_accuracy": metrics.top_k_accuracy,
            "precision": metrics.precision, "recall": metrics.recall, "f1": metrics.f1,
            "confusion_matrix": metrics.confusion_matrix,
        }  # fmt: skip
        for name, function in named.items():
            np.testing.assert_array_equal(
                metrics.METRICS[name](y, t).numpy(), function(y, t).numpy(), err_msg=name
            )
        (three,) = metric_functions(["top_3_accuracy"]).values()
        assert float(three(y, t)) == float(metrics.top_k_accuracy(y, t, 3))
        assert metric_functions(["top_3_accuracy"]) == {"top_3_accuracy": three}
        assert set(named) | {"mean_absolute_error", "mean_squared_error"} == set(metrics.METRICS)


def test_predicted_labels_are_outputs_too() -> None:
    predicted, labels = [0, 2, 1, 1, 0], [0, 1, 1, 2, 0]
    with current("inline"):
        y, t = mm.asarray(predicted), mm.asarray(labels)
        assert float(metrics.accuracy(y, t)) == pytest.approx(0.6)
        result = metrics.f1(y, t, None, classes=3).numpy()
        np.testing.assert_allclose(result, counterparts.f1_score(labels, predicted, average=None))
        matrix = metrics.confusion_matrix(y, t, classes=3)
        assert matrix.dtype == mm.int64
        np.testing.assert_array_equal(
            matrix.numpy(), counterparts.confusion_matrix(labels, predicted)
        )
        whole = mm.asarray(np.eye(3, dtype=np.float32)[labels])
        np.testing.assert_array_equal(metrics.confusion_matrix(y, whole).numpy(), matrix.numpy())


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda y, t: metrics.f1(t, t), MagmathError, r"do not determine the number of classes.*classes="),
        (lambda y, t: metrics.f1(y, t, "weighted"), MagmathError, "average must be .*'weighted'"),
        (lambda y, t: metrics.accuracy(y, t[:2]), ShapeError, r"accuracy: outputs \(4,\) and targets \(2,\)"),
        (lambda y, t: metrics.accuracy(y, y[:, 0]), DTypeError, "convert labels with mm.astype"),
        (lambda y, t: metrics.top_k_accuracy(y, t, 0), MagmathError, "k must be at least 1"),
        (lambda y, t: metrics.mean_squared_error(y, t), ShapeError, "mean_squared_error: outputs"),
        *[
            (lambda y, t, f=f: f(y, t[:, None]), ShapeError, r"give labels\[:, 0\]")
            for f in (metrics.accuracy, metrics.top_k_accuracy, metrics.f1, metrics.confusion_matrix)
        ],
        (lambda y, t: metrics.accuracy(t, t[:, None]), ShapeError, r"single column \(4, 1\); give labels\[:, 0\]"),
        (lambda y, t: metrics.accuracy(y[:, :1], t), ShapeError, r"single column .*astype\(y\[:, 0\] > 0\.5, mm\.int64\)"),
        (lambda y, t: metrics.f1(y, y[:, :2]), ShapeError, r"outputs \(4, 3\) and targets \(4, 2\) differ"),
    ],
)  # fmt: skip
def test_mistakes_are_named(call: Metric, error: type[Exception], message: str) -> None:
    with current("inline"), pytest.raises(error, match=message):
        call(mm.asarray(np.eye(4, 3)), mm.asarray([0, 1, 2, 0]))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_hits_have_a_label_in_range_and_an_output(k: int) -> None:
    """Outputs that are nan are the largest, as in `torch.topk`, except that of the label."""
    outputs = np.array([[-3.0, -2.0, -1.0, -4.0]] * 6)
    outputs[4, 1], outputs[5, 2] = np.nan, np.nan
    labels = np.array([2, -1, 4, 0, 1, 1])
    with current("inline", 1):
        result = float(mm.nn.metrics.top_k_accuracy(mm.asarray(outputs), mm.asarray(labels), k))
    hits = [True, False, False, k >= 3, False, k >= 2]
    assert result == pytest.approx(sum(hits) / 6)


@pytest.mark.parametrize("label", [3, -1, 5])
def test_a_sample_without_a_largest_output_is_a_miss(label: int) -> None:
    """Whatever number its label has, in range or not."""
    outputs = mm.asarray([[np.nan, 0.0, 0.0], [0.0, 1.0, 0.0]])
    assert float(mm.nn.metrics.accuracy(outputs, mm.asarray([label, 1]))) == 0.5
