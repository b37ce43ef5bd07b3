"""Outputs of the parts of a batch as those of the batch."""

from __future__ import annotations

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath.errors import ShapeError
from magmath.parallel.joined_outputs import joined_outputs, merged_outputs


@pytest.mark.parametrize("axis", [0, 1])
def test_outputs_are_joined_along_the_axis_of_samples(axis: int) -> None:
    with current("inline"):
        whole = mm.asarray(np.arange(24.0).reshape(4, 6))
        parts = mm.split(whole, [2], axis=axis)
        np.testing.assert_array_equal(joined_outputs(parts, whole, [0.5, 0.5]), whole)
        equal = mm.stack(mm.split(whole, 2, axis=axis))
        np.testing.assert_array_equal(merged_outputs(equal, whole), whole)


def test_outputs_without_samples_are_averaged_by_the_shares_of_the_parts() -> None:
    with current("inline"):
        parts = [mm.asarray([1.0, 2.0]), mm.asarray([5.0, 6.0])]
        assert joined_outputs(parts, mm.zeros(2), [0.75, 0.25]).tolist() == [2.0, 3.0]
        assert merged_outputs(mm.stack(parts), mm.zeros(2)).tolist() == [3.0, 4.0]


def test_outputs_with_samples_in_two_axes_are_refused() -> None:
    with current("inline"):
        parts = [mm.zeros((2, 2)), mm.zeros((2, 2))]
        with pytest.raises(ShapeError, match=r"\(4, 4\) depends on the samples in axes \[0, 1\]"):
            joined_outputs(parts, mm.zeros((4, 4)), [0.5, 0.5])
        with pytest.raises(ShapeError, match="single axis of samples"):
            merged_outputs(mm.stack(parts), mm.zeros((4, 4)))
