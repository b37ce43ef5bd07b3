"""The loss scale and the skipped steps of an epoch, for the history."""

from __future__ import annotations

from dataclasses import replace

from magmath.errors import NonFiniteLoss
from magmath.optim import LossScale
from magmath.train.history import EpochRecord

MIN_SCALE = 2.0**-24
"""The smallest float16 number: gradients that overflow with this scale do so without one."""


def with_scaling(record: EpochRecord, scale: LossScale, skipped: int) -> EpochRecord:
    """Return the record with the scale and the steps that were skipped since there were `skipped`.

    Raises NonFiniteLoss if the scale has become so small that no step can succeed.
    """
    value = scale.value
    if value < MIN_SCALE:
        raise NonFiniteLoss(
            f"fit: gradients in float16 are not finite in epoch {record.epoch}, whatever the scale "
            f"of the loss, which fell to {value:g}; use precision='mixed-bfloat16', whose range is "
            f"that of float32, or look for huge values in the data and the parameters"
        )
    return replace(record, skipped_steps=scale.skipped - skipped, loss_scale=value)
