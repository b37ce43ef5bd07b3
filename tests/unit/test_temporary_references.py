"""Reference counts of objects without names decide about work, not about results."""

from __future__ import annotations

import numpy as np
import pytest

import magmath as mm
from magmath.arrays import array, number_protocols
from magmath.arrays.temporary_references import TEMPORARY_NUMBER, distinct_counts


def test_equal_counts_do_not_count() -> None:
    assert distinct_counts({"a": 3, "b": 4}, {"a": 4, "b": 4}) == {"a": 3, "b": 0}


@pytest.mark.parametrize("n", [6, 400])
def test_results_are_the_same_where_no_count_is_that_of_an_object_without_a_name(
    n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TEMPORARY", "TEMPORARY_TARGET", "TEMPORARY_UPDATE"):
        monkeypatch.setattr(array, name, 0)
    monkeypatch.setattr(number_protocols, "TEMPORARY_NUMBER", dict.fromkeys(TEMPORARY_NUMBER, 0))
    x, expected = mm.zeros((n, n)), np.zeros((n, n), np.float32)
    for a in (x, expected):
        a[0] += 1
        row = a[1]
        row += 2
        a[:, 1] *= 3
        a[2:][0] += 1
        a[0][1] = 7
        a[1:3][1] -= 2
        row[3] = row[0] + 1
        a[::2] += a[:1]
    np.testing.assert_array_equal(x.numpy(), expected)
    assert float(mm.sum(x)) == expected.sum()
