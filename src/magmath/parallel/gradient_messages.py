"""Gradients as explicit parts, one for each worker, and the messages in which they are exchanged.

The parts of a gradient are an array (workers, …), whose sum along the first axis is the gradient of
the batch. In deterministic mode, where the planner divides no sums, there is one part.
"""

from __future__ import annotations

from typing import NamedTuple, final

from magmath.api.data_types import astype
from magmath.api.elementwise import greater_equal, maximum, not_equal
from magmath.api.manipulation import reshape
from magmath.api.packed_bits import packbits, unpackbits
from magmath.api.reductions import sum
from magmath.api.searching import where
from magmath.arrays.array import Array
from magmath.core.dtypes import DType, compute_dtype
from magmath.layout import Layout, Split
from magmath.ops.redistribute import redistribute
from magmath.ops.summands import sum_signs, summands
from magmath.passes.environment import Environment


def divided_batch(x: Array, environment: Environment) -> Array:
    """Return an array of samples (samples, …) of which every worker has an equal share; the array
    itself if there are fewer samples than workers."""
    if environment.deterministic or not x.ndim or x.shape[0] < environment.workers:
        return x
    return Array(redistribute(x.node, Layout.even(x.shape, environment.mesh, 0)))


def part_count(environment: Environment) -> int:
    """Return the number of parts of a gradient."""
    return 1 if environment.deterministic else environment.workers


def parts_of(gradient: Array, environment: Environment) -> Array:
    """Return the parts (workers, …) of a gradient, of which every worker stores its own."""
    return Array(summands(gradient.node, part_count(environment)))


# sums of parts --------------------------------------------------------------------------------


def sum_on(parts: Array, target: Layout, messages: DType) -> Array:
    """Return the sum of parts, in the layout `target`; each worker receives, in elements of
    `messages`, what it adds."""
    dtype = parts.dtype
    divided = _with_parts(target, parts.shape[0])
    received = Array(redistribute(astype(parts, messages).node, divided))
    return sum(astype(received, dtype), axis=0)


def sent_whole(x: Array, environment: Environment, messages: DType) -> Array:
    """Return an array on all workers, to which it is sent in elements of `messages`."""
    whole = environment.replicated(x.shape, shared=True)
    return astype(Array(redistribute(astype(x, messages).node, whole)), x.dtype)


def _with_parts(layout: Layout, count: int) -> Layout:
    """Return the layout of parts (count, …) of arrays in a layout: every worker has all parts of
    its elements."""
    splits = [None if s is None else Split(s.mesh_axis, s.pieces) for s in layout.splits]
    return Layout((count, *layout.shape), layout.mesh, (None, *splits))


# one bit --------------------------------------------------------------------------------------


@final
class OneBit(NamedTuple):
    """Parts (workers, n) in one bit for each element: the signs, packed, and the values
    (workers, 1) that stand for the elements of each part of at least 0, `positive`, and below 0,
    `negative`."""

    signs: Array
    positive: Array
    negative: Array

    @staticmethod
    def of(parts: Array) -> OneBit:
        """Return the parts in one bit: each element becomes the mean of the elements of its sign.

        Source: Seide, Fu, Droppo, Li and Yu (2014), 1-bit stochastic gradient descent and its
        application to data-parallel distributed training of speech DNNs, section 3.1.
        """
        is_positive = greater_equal(parts, 0)
        wide = astype(parts, compute_dtype(parts.dtype))  # half types hold no large counts and sums
        count = sum(astype(is_positive, wide.dtype), axis=1, keepdims=True)
        total = sum(where(is_positive, wide, 0.0), axis=1, keepdims=True)
        negative_total = sum(where(is_positive, 0.0, wide), axis=1, keepdims=True)
        negative_count = maximum(parts.shape[1] - count, 1.0)
        return OneBit(
            packbits(is_positive, axis=1),
            astype(total / maximum(count, 1.0), parts.dtype),
            astype(negative_total / negative_count, parts.dtype),
        )

    def values(self, count: int) -> Array:
        """Return the parts (workers, count) that the bits represent."""
        is_positive = not_equal(unpackbits(self.signs, axis=1, count=count), 0)
        return where(is_positive, self.positive, self.negative)

    def total(self, count: int) -> Array:
        """Return the sum (count,) of the parts that the bits represent, on all workers, to which
        the bits are sent."""
        signs, positive, negative = self
        return Array(sum_signs(signs.node, positive.node, negative.node, count))


def flat(parts: Array) -> Array:
    """Return parts (workers, …) as (workers, n)."""
    return reshape(parts, (parts.shape[0], -1))
