"""Weight averaging: replicas train on parts of each batch, and their weights are averaged."""

from __future__ import annotations

from typing import final

from magmath.api.manipulation import broadcast_to
from magmath.api.statistics import mean
from magmath.arrays.array import Array
from magmath.parallel.replicas import Replicas


@final
class WeightAveraging(Replicas):
    """Average the weights of replicas that each have taken `every` steps of their own.

    replicas   the number of replicas N
    every      the steps between two averages

    A step of replica i on its part of the batch is w_i ← w_i - η g_i, or the rule of another
    optimizer, whose states belong to the replica. Every `every` steps, w_i ← Σ_j w_j / N for all i.
    Source: SHM-Learn-Dist, Eq. 2.2 and 2.3, with every=1. Batches must be multiples of `replicas`.
    After each epoch of `fit`, the module has the mean of the weights.
    """

    def exchange(self, weights: Array) -> Array:
        return broadcast_to(mean(weights, axis=0), weights.shape)
