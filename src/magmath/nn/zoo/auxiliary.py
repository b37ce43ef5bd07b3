"""The loss of networks with auxiliary classifiers."""

from __future__ import annotations

from magmath.arrays.array import Array
from magmath.nn.losses import cross_entropy


def auxiliary_cross_entropy(
    outputs: Array | tuple[Array, ...], targets: Array, weight: float = 0.3
) -> Array:
    """Return the cross-entropy of the scores plus `weight` times that of each auxiliary output.

    outputs  scores (N, classes), or a tuple of scores and auxiliary scores, as `googlenet` and
             `inception_v3` return in training mode
    targets  labels (N,)
    weight   0.3 in Szegedy et al. (2015), section 5
    """
    if not isinstance(outputs, tuple):
        return cross_entropy(outputs, targets)
    loss = cross_entropy(outputs[0], targets)
    for scores in outputs[1:]:
        loss = loss + weight * cross_entropy(scores, targets)
    return loss
