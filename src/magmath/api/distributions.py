"""The distributions of random numbers, as methods of generators.

Uniform, normal and exponential numbers and random bits are functions of seed, stream and element
index; so are gamma, Poisson and binomial numbers (`ops/samplers.py`). The others are made of these.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from magmath.api import multivariate, random_order
from magmath.api.creation import DTypeLike
from magmath.api.random_draw import Draw, Parameter, Size, State, counted, integers
from magmath.arrays.array import Array, Operand
from magmath.arrays.conversion import LayoutLike
from magmath.core.dtypes import float64, int64
from magmath.graph import Node
from magmath.ops import creation, samplers
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant


class Distributions(ABC):
    """The distributions as methods, for classes with a generator state.

    Parameters are numbers, or arrays that broadcast to the result: without `size` the result has
    their shape. Numbers that are out of range raise OptionError, a ValueError. Arrays are checked
    where the values are drawn, for gamma, Poisson and binomial numbers; elsewhere wrong parameters
    give wrong numbers. `dtype` is the default floating-point type, or int64 for whole numbers.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def _state(self) -> State:
        """The generator state."""

    # uniform and normal -----------------------------------------------------------------------

    def uniform(
        self,
        low: Parameter = 0.0,
        high: Parameter = 1.0,
        shape: Size = None,
        *,
        size: Size = None,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return numbers drawn evenly from [low, high)."""
        draw = self._draw("uniform", _shape(shape, size), dtype, low=low, high=high)
        draw.check_order("low", "high")
        width = draw.difference("high", "low")
        drawn = draw.standard(creation.UNIFORM) * width + draw.parameter("low")
        return draw.result(drawn, layout)

    def normal(
        self,
        mean: Parameter = 0.0,
        std: Parameter = 1.0,
        shape: Size = None,
        *,
        loc: Parameter = None,
        scale: Parameter = None,
        size: Size = None,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return numbers from the normal distribution (Box–Muller). NumPy names the mean and the
        standard deviation loc and scale."""
        mean, std = mean if loc is None else loc, std if scale is None else scale
        draw = self._draw("normal", _shape(shape, size), dtype, mean=mean, std=std)
        draw.check("std", 0)
        return draw.result(_affine(draw, creation.NORMAL, "mean", "std"), layout)

    def integers(
        self,
        low: Parameter,
        high: Parameter = None,
        shape: Size = None,
        *,
        size: Size = None,
        dtype: DTypeLike = None,
        endpoint: bool = False,
        layout: LayoutLike = None,
    ) -> Array:
        """Return integers from low up to but not including high (or from 0 up to low); with
        `endpoint` high is included."""
        drawn = integers(self._state, low, high, _shape(shape, size), endpoint)
        return counted(drawn, dtype, layout)

    def random(self, size: Size = None, *, dtype: DTypeLike = None) -> Array:
        """Return numbers drawn evenly from [0, 1)."""
        return self.uniform(size=size, dtype=dtype)

    def standard_normal(self, size: Size = None, *, dtype: DTypeLike = None) -> Array:
        """Return numbers from the normal distribution with mean 0 and standard deviation 1."""
        return self.normal(size=size, dtype=dtype)

    def lognormal(
        self,
        mean: Parameter = 0.0,
        sigma: Parameter = 1.0,
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
        scale: Parameter = 1.0,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return numbers from the exponential distribution with mean `scale`."""
        draw = self._draw("exponential", size, dtype, scale=scale)
        draw.check("scale", 0)
        return draw.result(draw.standard(creation.EXPONENTIAL) * draw.parameter("scale"), layout)

    def standard_exponential(self, size: Size = None, *, dtype: DTypeLike = None) -> Array:
        """Return numbers from the exponential distribution with mean 1."""
        return self.exponential(size=size, dtype=dtype)

    def laplace(
        self,
        loc: Parameter = 0.0,
        scale: Parameter = 1.0,
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
        loc: Parameter = 0.0,
        scale: Parameter = 1.0,
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
        loc: Parameter = 0.0,
        scale: Parameter = 1.0,
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
        a: Parameter,
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
        scale: Parameter = 1.0,
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
        a: Parameter,
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

    def geometric(
        self,
        p: Parameter,
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
        return counted(e.call("maximum", whole, constant(1, float64)), dtype, layout)

    # made of gamma numbers ---------------------------------------------------------------------

    def gamma(
        self,
        shape: Parameter,
        scale: Parameter = 1.0,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return numbers from the gamma distribution (Marsaglia–Tsang). They have no gradient with
        respect to `shape`, the parameter."""
        draw = self._draw("gamma", size, dtype, shape=shape, scale=scale)
        draw.check("scale", 0)
        drawn = e.astype(_gamma(draw, "shape"), draw.dtype)
        return draw.result(drawn * draw.parameter("scale"), layout)

    def standard_gamma(
        self, shape: Parameter, size: Size = None, *, dtype: DTypeLike = None
    ) -> Array:
        """Return numbers from the gamma distribution with scale 1."""
        return self.gamma(shape, size=size, dtype=dtype)

    def chisquare(
        self,
        df: Parameter,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return sums of `df` squared standard normal numbers; df need not be whole."""
        draw = self._draw("chisquare", size, dtype, df=df)
        draw.check("df", 0, above=True)
        return draw.result(2.0 * _gamma(draw, "df", 0.5), layout)

    def standard_t(
        self,
        df: Parameter,
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
        return draw.result(drawn * e.call("sqrt", half / _gamma(draw, "df", 0.5)), layout)

    def f(
        self,
        dfnum: Parameter,
        dfden: Parameter,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return quotients of two chi-square numbers, each divided by its degrees of freedom."""
        draw = self._draw("f", size, dtype, dfnum=dfnum, dfden=dfden)
        parts = []
        for what in ("dfnum", "dfden"):
            draw.check(what, 0, above=True)
            parts.append(_gamma(draw, what, 0.5) / draw.parameter(what, float64))
        return draw.result(parts[0] / parts[1], layout)

    def beta(
        self,
        a: Parameter,
        b: Parameter,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return numbers from the beta distribution, X / (X + Y) for gamma numbers of shape a and
        b."""
        draw = self._draw("beta", size, dtype, a=a, b=b)
        for what in ("a", "b"):
            draw.check(what, 0, above=True)
        x, y = (_gamma(draw, what, record=samplers.LOG_GAMMA) for what in ("a", "b"))
        return draw.result(1.0 / (1.0 + e.call("exp", y - x)), layout)

    # counts ------------------------------------------------------------------------------------

    def poisson(
        self,
        lam: Parameter = 1.0,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return counts with mean `lam` (by search below 10, otherwise Hörmann's rejection)."""
        draw = self._draw("poisson", size, float64, lam=lam)
        draw.check_range("lam", samplers.LAM)
        return counted(
            draw.sampled(samplers.POISSON, draw.parameter("lam"), dtype=int64), dtype, layout
        )

    def binomial(
        self,
        n: Parameter,
        p: Parameter,
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
        return counted(draw.sampled(samplers.BINOMIAL, *parameters, dtype=int64), dtype, layout)

    def negative_binomial(
        self,
        n: Parameter,
        p: Parameter,
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
        lam = _gamma(draw, "n") * ((1.0 - p_node) / p_node)
        return counted(draw.sampled(samplers.POISSON, lam, dtype=int64), dtype, layout)

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

    def multinomial(
        self,
        n: Parameter,
        pvals: Operand,
        size: Size = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return how often each of k results occurs in `n` trials, (*size, k), for probabilities
        `pvals` (k,)."""
        return multivariate.multinomial(self._state, n, pvals, size, dtype, layout)

    # orders and choices ------------------------------------------------------------------------

    def permutation(self, x: int | Operand, *, axis: int = 0) -> Array:
        """Return 0 … x-1, or the entries of an array along `axis`, in random order."""
        return random_order.permutation(self._state, x, axis)

    def permuted(self, x: Operand, *, axis: int | None = None) -> Array:
        """Return the elements of an array in random order, each row along `axis` in its own one;
        for None the order of all elements is random."""
        return random_order.permuted(self._state, x, axis)

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

    def _draw(self, name: str, size: Size, dtype: DTypeLike, **given: Parameter) -> Draw:
        return Draw(self._state, name, size, dtype, **given)


def _shape(shape: Size, size: Size) -> Size:
    return shape if size is None else size


def _affine(draw: Draw, record: Any, shift: str, factor: str) -> Node:
    return draw.standard(record) * draw.parameter(factor) + draw.parameter(shift)


def _gamma(draw: Draw, what: str, factor: float = 1.0, record: Any = samplers.GAMMA) -> Node:
    """Return gamma numbers, float64, whose shape is `factor` times a parameter."""
    draw.check_range(what, samplers.SHAPE)
    shape = draw.parameter(what, float64)
    return draw.sampled(record, shape if factor == 1 else factor * shape)
