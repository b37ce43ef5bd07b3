"""The distributions of random numbers, as methods of generators.

Uniform, normal and exponential numbers are functions of seed, stream and element index. The other
distributions of this file are made of these.
"""

from __future__ import annotations

import math
from typing import Any

from magmath.api import multivariate, random_order
from magmath.api.count_distributions import CountDistributions
from magmath.api.creation import DTypeLike
from magmath.api.distribution_methods import documents_draws
from magmath.api.gamma_distributions import GammaDistributions
from magmath.api.random_draw import DistributionParameter, Draw, Size, one_size, size_or_shape_of
from magmath.arrays.array import Array, Operand
from magmath.arrays.inputs.conversion import LayoutLike
from magmath.arrays.ufuncs.output import stored
from magmath.core.dtypes import float64, uint8
from magmath.core.integers import require_integer
from magmath.errors import OptionError
from magmath.graph import Node
from magmath.ops import creation, samplers
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant


@documents_draws
class Distributions(CountDistributions, GammaDistributions):
    """The distributions as methods, for classes with a generator state.

    `size`, NumPy's name, is the shape of the result; `uniform`, `normal` and `integers` also take
    it as `shape`, which is a parameter of gamma numbers. Parameters are numbers, or arrays that
    broadcast to the result: without `size` the result has their shape. Numbers that are out of
    range raise OptionError, a ValueError. Arrays are checked where the values are drawn, for gamma,
    Poisson and binomial numbers; elsewhere the draws of such elements have no meaning. `dtype` is
    the default floating-point type, or int64 for whole numbers.
    """

    __slots__ = ()

    # uniform and normal -----------------------------------------------------------------------

    def uniform(
        self,
        low: DistributionParameter = 0.0,
        high: DistributionParameter = 1.0,
        shape: Size = None,
        *,
        size: Size = None,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return numbers drawn evenly from [low, high)."""
        draw = self._draw("uniform", one_size("uniform", shape, size), dtype, low=low, high=high)
        draw.check_order("low", "high")
        drawn = draw.standard(creation.UNIFORM)
        if not draw.has_numbers(low=0.0, high=1.0):
            start = draw.parameter("low")
            drawn = drawn * draw.difference("high", "low") + start
            is_below = e.call("less", drawn, draw.parameter("high"))  # it may be rounded up
            drawn = e.where(is_below, drawn, start)
        return draw.result(drawn, layout)

    def normal(
        self,
        mean: DistributionParameter = 0.0,
        std: DistributionParameter = 1.0,
        shape: Size = None,
        *,
        loc: DistributionParameter = None,
        scale: DistributionParameter = None,
        size: Size = None,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return numbers from the normal distribution (Box–Muller). NumPy names the mean and the
        standard deviation loc and scale."""
        mean, std = mean if loc is None else loc, std if scale is None else scale
        draw = self._draw("normal", one_size("normal", shape, size), dtype, mean=mean, std=std)
        draw.check("std", 0)
        return draw.result(_affine(draw, creation.NORMAL, "mean", "std"), layout)

    def random(self, size: Size = None, dtype: DTypeLike = None, out: Any = None) -> Array:
        """Return numbers drawn evenly from [0, 1)."""
        numbers = self.uniform(size=size_or_shape_of(size, out), dtype=dtype)
        return stored("random.random", numbers, out)

    def standard_normal(self, size: Size = None, dtype: DTypeLike = None, out: Any = None) -> Array:
        """Return numbers from the normal distribution with mean 0 and standard deviation 1."""
        numbers = self.normal(size=size_or_shape_of(size, out), dtype=dtype)
        return stored("random.standard_normal", numbers, out)

    def lognormal(
        self,
        mean: DistributionParameter = 0.0,
        sigma: DistributionParameter = 1.0,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return numbers whose logarithms have mean `mean` and standard deviation `sigma`."""
        draw = self._draw("lognormal", size, dtype, mean=mean, sigma=sigma)
        draw.check("sigma", 0)
        return draw.result(e.call("exp", _affine(draw, creation.NORMAL, "mean", "sigma")), layout)

    # made of exponential numbers ---------------------------------------------------------------

    def exponential(
        self,
        scale: DistributionParameter = 1.0,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return numbers from the exponential distribution with mean `scale`."""
        draw = self._draw("exponential", size, dtype, scale=scale)
        draw.check("scale", 0)
        return draw.result(draw.standard(creation.EXPONENTIAL) * draw.parameter("scale"), layout)

    def standard_exponential(
        self, size: Size = None, dtype: DTypeLike = None, method: str = "zig", out: Any = None
    ) -> Array:
        """Return numbers from the exponential distribution with mean 1. NumPy's methods, "zig" and
        "inv", have no effect."""
        if method not in ("zig", "inv"):
            raise OptionError(
                f'random.standard_exponential: method is "zig" or "inv", was given {method!r}; it '
                "has no effect, so leave it out"
            )
        numbers = self.exponential(size=size_or_shape_of(size, out), dtype=dtype)
        return stored("random.standard_exponential", numbers, out)

    def laplace(
        self,
        loc: DistributionParameter = 0.0,
        scale: DistributionParameter = 1.0,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return numbers with density exp(-|x - loc| / scale) / (2 scale), as differences of two
        exponential numbers."""
        draw = self._draw("laplace", size, dtype, loc=loc, scale=scale)
        draw.check("scale", 0)
        first, second = (draw.standard(creation.EXPONENTIAL) for _ in range(2))
        return draw.result(
            (first - second) * draw.parameter("scale") + draw.parameter("loc"), layout
        )

    def logistic(
        self,
        loc: DistributionParameter = 0.0,
        scale: DistributionParameter = 1.0,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return numbers from the logistic distribution: logarithms of the quotients of two
        exponential numbers."""
        draw = self._draw("logistic", size, dtype, loc=loc, scale=scale)
        draw.check("scale", 0)
        first, second = (draw.standard(creation.EXPONENTIAL) for _ in range(2))
        drawn = e.call("log", first) - e.call("log", second)
        return draw.result(drawn * draw.parameter("scale") + draw.parameter("loc"), layout)

    def gumbel(
        self,
        loc: DistributionParameter = 0.0,
        scale: DistributionParameter = 1.0,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return numbers from Gumbel's distribution of largest values."""
        draw = self._draw("gumbel", size, dtype, loc=loc, scale=scale)
        draw.check("scale", 0)
        drawn = -e.call("log", draw.standard(creation.EXPONENTIAL))
        return draw.result(drawn * draw.parameter("scale") + draw.parameter("loc"), layout)

    def weibull(
        self,
        a: DistributionParameter,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return numbers from Weibull's distribution of shape `a` and scale 1."""
        draw = self._draw("weibull", size, dtype, a=a)
        draw.check("a", 0, above=True)
        drawn = e.call("power", draw.standard(creation.EXPONENTIAL), 1.0 / draw.parameter("a"))
        return draw.result(drawn, layout)

    def rayleigh(
        self,
        scale: DistributionParameter = 1.0,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return lengths of vectors of two normal numbers with standard deviation `scale`."""
        draw = self._draw("rayleigh", size, dtype, scale=scale)
        draw.check("scale", 0)
        drawn = e.call("sqrt", 2.0 * draw.standard(creation.EXPONENTIAL))
        return draw.result(drawn * draw.parameter("scale"), layout)

    def pareto(
        self,
        a: DistributionParameter,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return numbers from the Pareto distribution II (Lomax) of shape `a`, as NumPy does."""
        draw = self._draw("pareto", size, dtype, a=a)
        draw.check("a", 0, above=True)
        drawn = e.call("expm1", draw.standard(creation.EXPONENTIAL) / draw.parameter("a"))
        return draw.result(drawn, layout)

    # made of several of these ------------------------------------------------------------------

    def standard_cauchy(
        self, size: Size = None, *, dtype: DTypeLike = None, layout: LayoutLike = None
    ) -> Array:
        """Return quotients of two standard normal numbers."""
        draw = self._draw("standard_cauchy", size, dtype)
        first, second = (draw.standard(creation.NORMAL) for _ in range(2))
        return draw.result(first / second, layout)

    def triangular(
        self,
        left: DistributionParameter,
        mode: DistributionParameter,
        right: DistributionParameter,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return numbers whose density rises linearly from left to mode and falls to right."""
        draw = self._draw("triangular", size, dtype, left=left, mode=mode, right=right)
        draw.check_order("left", "mode")
        draw.check_order("mode", "right")
        width, rise = draw.difference("right", "left"), draw.difference("mode", "left")
        fall = draw.difference("right", "mode")
        u = draw.standard(creation.UNIFORM)
        rising = draw.parameter("left") + e.call("sqrt", u * width * rise)
        falling = draw.parameter("right") - e.call("sqrt", (1.0 - u) * width * fall)
        return draw.result(e.where(e.call("less_equal", u * width, rise), rising, falling), layout)

    def power(
        self,
        a: DistributionParameter,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return numbers from 0 to 1 with density a·x^(a-1)."""
        draw = self._draw("power", size, dtype, a=a)
        draw.check("a", 0, above=True)
        u = -e.call("expm1", -draw.standard(creation.EXPONENTIAL))
        return draw.result(e.call("power", u, 1.0 / draw.parameter("a")), layout)

    def wald(
        self,
        mean: DistributionParameter,
        scale: DistributionParameter,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return numbers from the inverse Gaussian distribution (Michael, Schucany, Haas 1976)."""
        draw = self._draw("wald", size, dtype, mean=mean, scale=scale)
        for name in ("mean", "scale"):
            draw.check(name, 0, above=True)
        centre = draw.parameter("mean", float64)
        z = draw.standard(creation.NORMAL, float64)
        y = centre * z * z / draw.parameter("scale", float64)
        x = centre * (2.0 / (2.0 + y + e.call("sqrt", y * (y + 4.0))))  # the smaller root
        u = draw.standard(creation.UNIFORM, float64)
        is_smaller = e.call("less_equal", u * (centre + x), centre)
        return draw.result(e.where(is_smaller, x, centre * (centre / x)), layout)

    def vonmises(
        self,
        mu: DistributionParameter,
        kappa: DistributionParameter,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return angles from -π to π around mu, of concentration kappa (Best and Fisher); for kappa
        above 10^6 normal ones."""
        draw = self._draw("vonmises", size, dtype, mu=mu, kappa=kappa)
        draw.check_range("kappa", samplers.CONCENTRATION)
        kappa_node = draw.parameter("kappa", float64)
        angle = e.call("acos", draw.sampled(samplers.VONMISES_COSINE, kappa_node))
        z = draw.standard(creation.NORMAL, float64)
        around = e.where(
            e.call("greater", kappa_node, constant(1e6, float64)),
            z / e.call("sqrt", e.call("maximum", kappa_node, constant(1.0, float64))),
            e.call("copysign", angle, z),
        )
        shifted_angle = draw.parameter("mu", float64) + around + math.pi
        full = constant(2 * math.pi, float64)
        return draw.result(e.call("remainder", shifted_angle, full) - math.pi, layout)

    # vectors -----------------------------------------------------------------------------------

    def multivariate_normal(
        self,
        mean: Operand,
        cov: Operand,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return normal vectors (*size, d) with mean (d,) and covariance matrix (d, d), which is
        symmetric; its negative eigenvalues count as 0."""
        return multivariate.normal(self._state, mean, cov, size, dtype, layout)

    def dirichlet(
        self,
        alpha: Operand,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return vectors (*size, k) of positive numbers with sum 1, for `alpha` (k,)."""
        return multivariate.dirichlet(self._state, alpha, size, dtype, layout)

    def bytes(self, length: int) -> bytes:
        """Return random bytes."""
        drawn = self.integers(0, 256, size=require_integer("random.bytes: length", length, 0))
        return drawn.astype(uint8).tobytes()

    # orders and choices ------------------------------------------------------------------------

    def permutation(self, x: int | Operand, axis: int = 0) -> Array:
        """Return 0 … x-1, or the entries of an array along `axis`, in random order."""
        return random_order.permutation(self._state, x, axis)

    def permuted(self, x: Operand, *, axis: int | None = None, out: Any = None) -> Array:
        """Return the elements of an array in random order: each 1-D slice along `axis` in an order
        of its own, or for None all elements in one order."""
        return stored("random.permuted", random_order.permuted(self._state, x, axis), out)

    def choice(
        self,
        a: int | Operand,
        size: Size = None,
        replace: bool = True,
        p: Any = None,
        axis: int = 0,
        shuffle: bool = True,
    ) -> Array:
        """Return entries of an array along `axis`, or integers below `a`, with probabilities p.
        Their order is always random, so `shuffle` has no effect."""
        return random_order.choice(self._state, a, size, replace, p, axis)

    def shuffle(self, x: Array, axis: int = 0) -> None:
        """Bring the entries of an array along `axis` into random order, in place."""
        random_order.shuffle(self._state, x, axis)


def _affine(draw: Draw, record: Any, shift: str, factor: str) -> Node:
    return draw.standard(record) * draw.parameter(factor) + draw.parameter(shift)
