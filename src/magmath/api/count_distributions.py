"""Discrete distributions, as methods of generators.

Random bits, Poisson, binomial, hypergeometric and Zipf's numbers are functions of seed, stream and
element index (`ops/samplers.py`). The others are made of these and of exponential numbers.
"""

from __future__ import annotations

import math

from magmath.api import multivariate
from magmath.api.creation import DTypeLike
from magmath.api.distribution_methods import DistributionMethods, documents_draws
from magmath.api.random_draw import (
    DistributionParameter,
    Size,
    gamma_numbers,
    one_size,
    whole_numbers,
)
from magmath.api.random_integers import integers
from magmath.arrays.array import Array, Operand
from magmath.arrays.inputs.conversion import LayoutLike
from magmath.core.dtypes import float64, int64
from magmath.core.parameter_ranges import LARGEST_COUNT
from magmath.ops import creation, samplers
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant


@documents_draws
class CountDistributions(DistributionMethods):
    """The discrete distributions as methods; `Distributions` describes the parameters."""

    __slots__ = ()

    # numbers -----------------------------------------------------------------------------------

    def integers(
        self,
        low: DistributionParameter,
        high: DistributionParameter = None,
        shape: Size = None,
        *,
        size: Size = None,
        dtype: DTypeLike = None,
        endpoint: bool = False,
        layout: LayoutLike = None,
    ) -> Array:
        """Return integers from low up to but not including high (or from 0 up to low); with
        `endpoint` high is included."""
        size = one_size("integers", shape, size)
        return whole_numbers(integers(self._state, low, high, size, endpoint, dtype), dtype, layout)

    def geometric(
        self,
        p: DistributionParameter,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return the numbers of trials, with probability `p` each, up to the first success."""
        draw = self._draw("geometric", size, float64, p=p)
        draw.check("p", 0, 1, above=True)
        rate = -e.call("log1p", -draw.parameter("p"))
        whole = e.call("ceil", draw.standard(creation.EXPONENTIAL) / rate)
        least, most = constant(1, float64), constant(LARGEST_COUNT, float64)
        limited = e.call("minimum", e.call("maximum", whole, least), most)
        return whole_numbers(limited, dtype, layout)

    def poisson(
        self,
        lam: DistributionParameter = 1.0,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return counts with mean `lam` (by search below 10, otherwise Hörmann's rejection)."""
        draw = self._draw("poisson", size, float64, lam=lam)
        draw.check_range("lam", samplers.LAM)
        return whole_numbers(
            draw.sampled(samplers.POISSON, draw.parameter("lam"), dtype=int64), dtype, layout
        )

    def binomial(
        self,
        n: DistributionParameter,
        p: DistributionParameter,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return numbers of successes among `n` trials with probability `p` each (by search for a
        mean below 10, otherwise Hörmann's rejection)."""
        draw = self._draw("binomial", size, float64, n=n, p=p)
        draw.check_range("n", samplers.TRIALS)
        draw.check_range("p", samplers.PROBABILITY)
        parameters = e.call("floor", draw.parameter("n")), draw.parameter("p")
        return whole_numbers(
            draw.sampled(samplers.BINOMIAL, *parameters, dtype=int64), dtype, layout
        )

    def negative_binomial(
        self,
        n: DistributionParameter,
        p: DistributionParameter,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return numbers of failures before the n-th success, of trials with probability `p`."""
        draw = self._draw("negative_binomial", size, float64, n=n, p=p)
        draw.check("n", 0, above=True)
        draw.check("p", 0, 1, above=True)
        p_node = draw.parameter("p")
        lam = gamma_numbers(draw, "n") * ((1.0 - p_node) / p_node)
        return whole_numbers(draw.sampled(samplers.POISSON, lam, dtype=int64), dtype, layout)

    def hypergeometric(
        self,
        ngood: DistributionParameter,
        nbad: DistributionParameter,
        nsample: DistributionParameter,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return how many of `nsample` items, drawn without replacement from ngood + nbad, are
        good."""
        draw = self._draw("hypergeometric", size, float64, ngood=ngood, nbad=nbad, nsample=nsample)
        for name, allowed in samplers.ITEMS.items():
            draw.check_range(name, allowed)
        draw.check_sum("nsample", "ngood", "nbad")
        numbers = [e.call("floor", draw.parameter(name)) for name in samplers.ITEMS]
        return whole_numbers(
            draw.sampled(samplers.HYPERGEOMETRIC, *numbers, dtype=int64), dtype, layout
        )

    def zipf(
        self,
        a: DistributionParameter,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return whole numbers k from 1 with probabilities in proportion to k^(-a) (Devroye)."""
        draw = self._draw("zipf", size, float64, a=a)
        draw.check_range("a", samplers.EXPONENT)
        return whole_numbers(
            draw.sampled(samplers.ZIPF, draw.parameter("a"), dtype=int64), dtype, layout
        )

    def logseries(
        self,
        p: DistributionParameter,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return whole numbers k from 1 with probabilities in proportion to p^k / k (Kemp 1981)."""
        draw = self._draw("logseries", size, float64, p=p)
        draw.check("p", 0, math.nextafter(1, 0))
        v = draw.standard(creation.EXPONENTIAL)  # minus a logarithm
        u = draw.standard(creation.UNIFORM)
        q = -e.call("expm1", u * e.call("log1p", -draw.parameter("p")))
        drawn = e.call("maximum", e.call("floor", 1.0 - v / e.call("log", q)), constant(1, float64))
        return whole_numbers(drawn, dtype, layout)

    # vectors -----------------------------------------------------------------------------------

    def multinomial(
        self,
        n: DistributionParameter,
        pvals: Operand,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return how often each of k results occurs in `n` trials, (*size, k), for probabilities
        `pvals` (k,)."""
        return multivariate.multinomial(self._state, n, pvals, size, dtype, layout)

    def multivariate_hypergeometric(
        self,
        colors: Operand,
        nsample: DistributionParameter,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return how many items of each of k colours there are among `nsample`, (*size, k), drawn
        without replacement from `colors` (k,) items."""
        return multivariate.hypergeometric(self._state, colors, nsample, size, dtype, layout)
