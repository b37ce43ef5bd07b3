"""Random vectors: normal, Dirichlet, multinomial and hypergeometric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from magmath.api.activations import softmax
from magmath.api.creation import DTypeLike, normal_shape
from magmath.api.cumulative import cumulative_sum
from magmath.api.elementwise import clip
from magmath.api.manipulation import stack
from magmath.api.random_draw import Draw, DrawState, Size, whole_numbers
from magmath.api.reductions import sum
from magmath.api.searching import where
from magmath.arrays.array import Array, as_array
from magmath.arrays.inputs.conversion import LayoutLike
from magmath.arrays.inputs.number_list import has_elements_of
from magmath.core.dtypes import float64, int64
from magmath.engine.user_line import user_line
from magmath.errors import OptionError, ShapeError
from magmath.graph import Node, apply
from magmath.ops import creation, samplers
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant
from magmath.ops.linalg import eigen
from magmath.ops.linalg.matrix_algebra import matrix_transpose
from magmath.ops.product.contraction import matmul
from magmath.ops.sums import broadcast_to


def _vector(name: str, parameter: str, value: Any) -> Node:
    node = as_array(f"random.{name}", value, float64).node
    if node.ndim != 1:
        raise ShapeError(
            f"random.{name}: {parameter} has one dimension, was given shape {node.shape}"
            "; draw for one vector at a time"
        )
    return node


def normal(
    state: DrawState, mean: Any, cov: Any, size: Size, dtype: DTypeLike, layout: LayoutLike
) -> Array:
    """Return vectors mean + √cov · z for standard normal z, with the symmetric root of cov.

    Unlike eigenvectors, this root is unique, so it does not depend on how it is computed.
    """
    name = "random.multivariate_normal"
    centre = _vector("multivariate_normal", "mean", mean)
    matrix = as_array(name, cov, float64).node
    if matrix.shape != centre.shape * 2:
        raise ShapeError(
            f"{name}: cov has shape (d, d) for a mean of shape (d,), was given {matrix.shape} and "
            f"{centre.shape}"
            "; pass a matrix with a row for each entry of the mean"
        )
    shape = normal_shape(name, () if size is None else size)
    draw = Draw(state, "multivariate_normal", (*shape, *centre.shape), dtype)
    values, vectors = eigen.eigen_parts(apply(eigen.EIGH, matrix, line=user_line()))
    spread = e.call("sqrt", e.call("maximum", e.real(values), constant(0, float64)))
    root = matmul(vectors * spread, matrix_transpose(vectors))
    drawn = draw.standard(creation.NORMAL, float64)
    return draw.result(matmul(drawn, root, line=user_line()) + centre, layout)


def dirichlet(
    state: DrawState, alpha: Any, size: Size, dtype: DTypeLike, layout: LayoutLike
) -> Array:
    """Return gamma numbers divided by their sum, from their logarithms, which cannot vanish."""
    shapes = _vector("dirichlet", "alpha", alpha)
    shape = normal_shape("random.dirichlet", () if size is None else size)
    draw = Draw(state, "dirichlet", (*shape, *shapes.shape), dtype)
    logs = Array(draw.sampled(samplers.LOG_GAMMA, shapes))
    return draw.result(softmax(logs).node, layout)


def multinomial(
    state: DrawState, n: Any, pvals: Any, size: Size, dtype: DTypeLike, layout: LayoutLike
) -> Array:
    """Return one binomial number after the other: of the trials that are left, those with result i,
    which has probability pvals[i] / (1 - the sum of the earlier ones)."""
    name = "multinomial"
    draw = Draw(state, name, size, float64, n=n)
    draw.check_range("n", samplers.TRIALS)
    probabilities = Array(_vector(name, "pvals", pvals))
    _check_probabilities(pvals)
    remaining_share = 1 - (cumulative_sum(probabilities) - probabilities)
    shares = where(remaining_share > 0, clip(probabilities / remaining_share, 0, 1), 0.0)
    trials = broadcast_to(e.call("floor", draw.parameter("n")), draw.shape)
    counts = []
    for i in range(probabilities.size - 1):
        counts.append(draw.sampled(samplers.BINOMIAL, trials, shares[i].node, dtype=int64))
        trials = trials - e.astype(counts[-1], float64)
    counts.append(e.astype(trials, int64))
    drawn = stack([Array(x) for x in counts], axis=-1)
    return whole_numbers(drawn.node, dtype, layout)


def hypergeometric(
    state: DrawState, colors: Any, nsample: Any, size: Size, dtype: DTypeLike, layout: LayoutLike
) -> Array:
    """Return one hypergeometric number after the other: of the items that are left to draw, those
    of color i among the items of this and the later colors."""
    name = "multivariate_hypergeometric"
    draw = Draw(state, name, size, float64, nsample=nsample)
    draw.check_range("nsample", samplers.ITEMS["nsample"])
    _check_colors(draw, colors)
    items = Array(_vector(name, "colors", colors))
    later = sum(items) - cumulative_sum(items)
    remaining_draws = broadcast_to(e.call("floor", draw.parameter("nsample")), draw.shape)
    counts = []
    for i in range(items.size - 1):
        parameters = items[i].node, later[i].node, remaining_draws
        counts.append(draw.sampled(samplers.HYPERGEOMETRIC, *parameters, dtype=int64))
        remaining_draws = remaining_draws - e.astype(counts[-1], float64)
    counts.append(e.astype(remaining_draws, int64))
    return whole_numbers(stack([Array(x) for x in counts], axis=-1).node, dtype, layout)


def _is_known(values: Any) -> bool:
    """Return True for numbers whose values are known in this process."""
    return isinstance(values, np.ndarray) or (
        isinstance(values, Sequence) and not has_elements_of(values, Array)
    )


def _not_negative(name: str, parameter: str, numbers: Any) -> NDArray[Any]:
    """Return known numbers as an array. Raises OptionError unless all are at least 0."""
    values = np.asarray(numbers, dtype=float)
    if not (values >= 0).all():
        raise OptionError(
            f"random.{name}: {parameter} must be at least 0, was given {values.min():g}"
            "; replace negative ones by 0"
        )
    return values


def _check_colors(draw: Draw, colors: Any) -> None:
    """Raise OptionError for numbers of items, if their values are known here, that are negative or
    less than those to be drawn."""
    if _is_known(colors):
        values = _not_negative(draw.name, "colors", colors)
        draw.check_total("nsample", "the sum of colors", float(values.sum()))


def _check_probabilities(pvals: Any) -> None:
    """Raise OptionError for probabilities, if their values are known here, that are negative or
    have a sum above 1."""
    if _is_known(pvals):
        values = _not_negative("multinomial", "pvals", pvals)
        total = float(values[:-1].sum())
        if total > 1 + 1e-6:
            raise OptionError(
                f"random.multinomial: the sum of pvals must not be above 1, was given {total:g} "
                f"without the last one"
                "; divide them by their sum"
            )
