"""scikit-learn and SciPy compute with distributed arrays as they do with NumPy's.

It is a separate program, since SciPy reads SCIPY_ARRAY_API when it is imported. It fails with the
first function that raises, does not return an array of magmath, or differs from NumPy's result.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

os.environ["SCIPY_ARRAY_API"] = "1"

import numpy as np
import sklearn
from scipy import special, stats
from sklearn import metrics
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from sklearn.preprocessing import MinMaxScaler, StandardScaler

import magmath as mm

RANDOM = np.random.default_rng(0)
SAMPLES = RANDOM.normal(size=(60, 5))
TARGETS = SAMPLES @ RANDOM.normal(size=5) + 3
LABELS = (TARGETS > 3).astype("int64")
GUESSES = (TARGETS > 3.4).astype("int64")
POSITIVE = RANDOM.random((30, 3)) + 0.1

ESTIMATORS = [
    (StandardScaler(), (SAMPLES,), "transform"),
    (MinMaxScaler(), (SAMPLES,), "transform"),
    (PCA(3, svd_solver="full"), (SAMPLES,), "transform"),
    (PCA(3, svd_solver="covariance_eigh"), (SAMPLES,), "transform"),
    (Ridge(solver="svd"), (SAMPLES, TARGETS), "predict"),
    (LinearDiscriminantAnalysis(), (SAMPLES, LABELS), "predict_proba"),
]
METRICS = [
    *[(name, LABELS, GUESSES) for name in ("accuracy_score", "f1_score", "recall_score")],
    *[(name, TARGETS, TARGETS + SAMPLES[:, 0]) for name in ("r2_score", "mean_squared_error")],
    *[(name, SAMPLES, SAMPLES) for name in ("pairwise.rbf_kernel", "pairwise.cosine_similarity")],
]
STATISTICS = [
    *[
        (name, (SAMPLES,))
        for name in ("zscore", "skew", "kurtosis", "variation", "sem", "normaltest")
    ],
    *[(name, (POSITIVE,)) for name in ("gmean", "hmean")],
    ("ttest_1samp", (SAMPLES, 0.0)),
    ("ttest_ind", (SAMPLES, SAMPLES[:40] + 0.3)),
    ("pearsonr", (SAMPLES[:, 0], TARGETS)),
]
SPECIAL = [
    *[(name, (SAMPLES,)) for name in ("erf", "expit", "ndtr", "log_ndtr", "i0", "logsumexp")],
    *[(name, (POSITIVE,)) for name in ("gammaln", "entr", "softmax")],
    *[(name, (POSITIVE, POSITIVE * 2)) for name in ("rel_entr", "xlogy", "gammainc")],
]  # fmt: skip


def placed(value: Any) -> Any:
    """A NumPy array on the workers, with cyclic rows."""
    if not isinstance(value, np.ndarray):
        return value
    return mm.asarray(value, layout=mm.Layout.cyclic(0, 2))


def compare(name: str, ours: Any, theirs: Any) -> None:
    """Assert that results agree, and that those for distributed arrays are such arrays."""
    parts = [(ours, theirs)]
    if isinstance(theirs, tuple):
        parts = list(zip(ours, theirs, strict=True))
    for mine, other in parts:
        if np.ndim(other):
            assert isinstance(mine, mm.Array), f"{name} gives a {type(mine).__name__}"
        np.testing.assert_allclose(np.asarray(mine), other, rtol=1e-6, atol=1e-6, err_msg=name)


def check() -> None:
    """Everything, in the current pool."""
    with sklearn.config_context(array_api_dispatch=True):
        for estimator, data, method in ESTIMATORS:
            ours, theirs = (
                getattr(clone(estimator).fit(*given), method)(given[0])
                for given in (tuple(map(placed, data)), data)
            )
            compare(str(estimator), ours, theirs)
        for name, a, b in METRICS:
            home, _, attribute = name.rpartition(".")
            function = getattr(getattr(metrics, home) if home else metrics, attribute)
            compare(name, function(placed(a), placed(b)), function(a, b))
    for module, table in ((stats, STATISTICS), (special, SPECIAL)):
        for name, data in table:
            function = getattr(module, name)
            compare(name, function(*map(placed, data)), function(*data))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for workers in map(int, sys.argv[1:]):
        with mm.init(workers, launcher="threads", threads=1):
            check()
