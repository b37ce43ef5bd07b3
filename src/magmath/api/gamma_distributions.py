"""Distributions made of gamma numbers, as methods of generators.

Gamma and Poisson numbers are functions of seed, stream and element index (`ops/samplers.py`).
"""

from __future__ import annotations

from typing import Any

from magmath.api.creation import DTypeLike
from magmath.api.distribution_methods import DistributionMethods, documents_draws
from magmath.api.random_draw import (
    DistributionParameter,
    Draw,
    Size,
    gamma_numbers,
    size_or_shape_of,
)
from magmath.arrays.array import Array
from magmath.arrays.inputs.conversion import LayoutLike
from magmath.arrays.ufuncs.output import stored
from magmath.core.dtypes import float64, int64
from magmath.graph import Node
from magmath.ops import creation, samplers
from magmath.ops import elementwise as e


@documents_draws
class GammaDistributions(DistributionMethods):
    """The distributions made of gamma numbers; `Distributions` describes the parameters."""

    __slots__ = ()

    def gamma(
        self,
        shape: DistributionParameter,
        scale: DistributionParameter = 1.0,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return numbers from the gamma distribution (Marsaglia–Tsang). They have no gradient with
        respect to `shape`, the parameter."""
        draw = self._draw("gamma", size, dtype, shape=shape, scale=scale)
        draw.check("scale", 0)
        drawn = e.astype(gamma_numbers(draw, "shape"), draw.dtype)
        return draw.result(drawn * draw.parameter("scale"), layout)

    def standard_gamma(
        self,
        shape: DistributionParameter,
        size: Size = None,
        dtype: DTypeLike = None,
        out: Any = None,
    ) -> Array:
        """Return numbers from the gamma distribution with scale 1."""
        numbers = self.gamma(shape, size=size_or_shape_of(size, out), dtype=dtype)
        return stored("random.standard_gamma", numbers, out)

    def chisquare(
        self,
        df: DistributionParameter,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return sums of `df` squared standard normal numbers; df need not be whole."""
        draw = self._draw("chisquare", size, dtype, df=df)
        draw.check("df", 0, above=True)
        return draw.result(2.0 * gamma_numbers(draw, "df", 0.5), layout)

    def standard_t(
        self,
        df: DistributionParameter,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return numbers from Student's t distribution with `df` degrees of freedom."""
        draw = self._draw("standard_t", size, dtype, df=df)
        draw.check("df", 0, above=True)
        half = 0.5 * draw.parameter("df", float64)
        drawn = draw.standard(creation.NORMAL, float64)
        return draw.result(drawn * e.call("sqrt", half / gamma_numbers(draw, "df", 0.5)), layout)

    def f(
        self,
        dfnum: DistributionParameter,
        dfden: DistributionParameter,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return quotients of two chi-square numbers, each divided by its degrees of freedom."""
        draw = self._draw("f", size, dtype, dfnum=dfnum, dfden=dfden)
        parts = []
        for name in ("dfnum", "dfden"):
            draw.check(name, 0, above=True)
            parts.append(gamma_numbers(draw, name, 0.5) / draw.parameter(name, float64))
        return draw.result(parts[0] / parts[1], layout)

    def beta(
        self,
        a: DistributionParameter,
        b: DistributionParameter,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return numbers from the beta distribution, X / (X + Y) for gamma numbers of shape a and
        b."""
        draw = self._draw("beta", size, dtype, a=a, b=b)
        for name in ("a", "b"):
            draw.check(name, 0, above=True)
        x, y = (gamma_numbers(draw, name, record=samplers.LOG_GAMMA) for name in ("a", "b"))
        return draw.result(1.0 / (1.0 + e.call("exp", y - x)), layout)

    def noncentral_chisquare(
        self,
        df: DistributionParameter,
        nonc: DistributionParameter,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return chi-square numbers with df + 2·P degrees of freedom, for Poisson numbers P of mean
        nonc / 2."""
        draw = self._draw("noncentral_chisquare", size, dtype, df=df, nonc=nonc)
        return draw.result(_noncentral(draw, "df", "nonc"), layout)

    def noncentral_f(
        self,
        dfnum: DistributionParameter,
        dfden: DistributionParameter,
        nonc: DistributionParameter,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return quotients of a noncentral and a central chi-square number, each divided by its
        degrees of freedom."""
        draw = self._draw("noncentral_f", size, dtype, dfnum=dfnum, dfden=dfden, nonc=nonc)
        draw.check("dfden", 0, above=True)
        above = _noncentral(draw, "dfnum", "nonc") / draw.parameter("dfnum", float64)
        below = 2.0 * gamma_numbers(draw, "dfden", 0.5) / draw.parameter("dfden", float64)
        return draw.result(above / below, layout)


def _noncentral(draw: Draw, df: str, nonc: str) -> Node:
    """Return noncentral chi-square numbers, float64."""
    draw.check(df, 0, above=True)
    draw.check(nonc, 0)
    half = 0.5 * draw.parameter(nonc, float64)
    more = e.astype(draw.sampled(samplers.POISSON, half, dtype=int64), float64)
    return 2.0 * draw.sampled(samplers.GAMMA, 0.5 * draw.parameter(df, float64) + more)
