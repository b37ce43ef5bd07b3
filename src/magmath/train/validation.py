"""The validation data of `fit`: given, or the last part of the training data."""

from __future__ import annotations

from functools import partial
from typing import Any

from magmath.api.creation import asarray
from magmath.arrays.tree import flatten
from magmath.data.loader import Loader
from magmath.errors import DataError, OptionError
from magmath.train.resident_data import mapped


def training_and_validation(
    samples: tuple[Any, Any, Any],
    validation: Any,
    validation_data: Any,
    validation_split: float,
) -> tuple[tuple[Any, Any, Any], Any]:
    """Return inputs, targets and weights for training, and the validation data; None for none.

    `validation_data` is Keras's name of `validation`. A `validation_split` above 0 separates this
    share of the samples, the last ones, as Keras does. Raises OptionError if more than one of them
    is given, or for a share that is not between 0 and 1.
    """
    if validation_data is not None and validation is not None:
        raise OptionError("fit: validation_data is another name of validation; give one of them")
    held_out = validation if validation_data is None else validation_data
    if not validation_split:
        return samples, held_out
    if held_out is not None:
        raise OptionError("fit: give validation data or validation_split, not both")
    if not 0 < validation_split < 1:
        raise OptionError(
            f"fit: validation_split is a share between 0 and 1, was given {validation_split!r}"
        )
    if isinstance(samples[0], Loader):
        raise OptionError("fit: a Loader cannot be split; give validation=, another Loader")
    arrays: list[Any] = [mapped(values, _array) for values in samples]
    counts = {len(array) for array in flatten(arrays)[0]}
    if len(counts) != 1:
        raise DataError(
            f"fit: inputs, targets and weights have {sorted(counts)} samples; need equal numbers"
        )
    (count,) = counts
    training_count = int(count * (1 - validation_split))
    if not 0 < training_count < count:
        raise OptionError(
            f"fit: validation_split={validation_split} of {count} samples leaves none for training "
            f"or none for validation"
        )
    first, last = (
        partial(_part, part=part) for part in (slice(training_count), slice(training_count, None))
    )
    x, y, weights = [mapped(values, first) for values in arrays]
    return (x, y, weights), tuple([mapped(values, last) for values in arrays])


def _part(values: Any, part: slice) -> Any:
    return values[part]


def _array(values: Any) -> Any:
    """Return values that can be sliced by samples."""
    return values if hasattr(values, "shape") else asarray(values)
