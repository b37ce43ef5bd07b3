"""Initializers: initial values of parameters, as functions of the shape.

An initializer is a small object that is called with a shape; `mm.variable` accepts it instead of a
value:

    w = mm.variable("w", mm.nn.initializers.glorot, shape=(784, 128))
    x = mm.nn.initializers.Uniform(-1.0, 1.0)((32, 28, 28))

Random initializers draw from the pool's generator, or from a given one. The numbers depend on the
global position of each element, so they are the same for every layout and number of workers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, final

from magmath.api import elementwise, linalg, random
from magmath.api.creation import DTypeLike, eye, full, normal_shape
from magmath.api.data_types import astype
from magmath.api.manipulation import reshape
from magmath.api.products import matrix_transpose
from magmath.api.searching import where
from magmath.arrays.array import Array
from magmath.arrays.inputs.conversion import LayoutLike
from magmath.core.dtypes import DType, as_dtype, compute_dtype, float32
from magmath.core.promotion import get_default_dtype
from magmath.core.shapes import size_of
from magmath.errors import DTypeError, OptionError, ShapeError
from magmath.graph import Shape

__all__ = [
    "INITIALIZERS",
    "Constant",
    "Identity",
    "Initializer",
    "Mask",
    "Normal",
    "Orthogonal",
    "TruncatedNormal",
    "Uniform",
    "VarianceScaling",
    "glorot",
    "glorot_normal",
    "he",
    "he_normal",
    "identity",
    "lecun",
    "lecun_normal",
    "mask",
    "normal",
    "ones",
    "orthogonal",
    "truncated_normal",
    "uniform",
    "zeros",
]


def __dir__() -> list[str]:
    return __all__


Fan = Literal["fan_in", "fan_out", "fan_avg"]
Distribution = Literal["uniform", "normal", "truncated_normal"]


class RandomSource(Protocol):
    """The source of random initializers: a generator, or the module `mm.random`."""

    def uniform(self, low: float, high: float, shape: Shape, *, dtype: DTypeLike) -> Array:
        """Return numbers from the uniform distribution over [low, high)."""

    def normal(self, mean: float, std: float, shape: Shape, *, dtype: DTypeLike) -> Array:
        """Return numbers from the normal distribution."""


@dataclass(frozen=True)
class Initializer(ABC):
    """The base class of initializers: initial values as a function of the shape."""

    def __call__(
        self,
        shape: int | Sequence[int],
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
        rng: random.Generator | int | None = None,
    ) -> Array:
        """Return an array of this shape, by default of the default floating point type.

        `rng` is a generator or a seed; by default random numbers come from the pool's generator.
        """
        element = get_default_dtype() if dtype is None else as_dtype(dtype)
        source: Any = random if rng is None else rng
        if isinstance(rng, int):
            source = random.Generator(rng)
        array = self.values(normal_shape(type(self).__name__, shape), element, source)
        return array if layout is None else array.redistribute(layout)

    @abstractmethod
    def values(self, shape: Shape, dtype: DType, rng: RandomSource) -> Array:
        """Return the values, of this shape and type."""


@final
@dataclass(frozen=True)
class Constant(Initializer):
    """The same number for all elements."""

    value: float

    def values(self, shape: Shape, dtype: DType, rng: RandomSource) -> Array:
        return full(shape, self.value, dtype=dtype)


@final
@dataclass(frozen=True)
class Uniform(Initializer):
    """Numbers from the uniform distribution over [low, high)."""

    low: float = 0.0
    high: float = 1.0

    def values(self, shape: Shape, dtype: DType, rng: RandomSource) -> Array:
        return rng.uniform(self.low, self.high, shape, dtype=dtype)


@final
@dataclass(frozen=True)
class Normal(Initializer):
    """Numbers from a normal distribution."""

    mean: float = 0.0
    std: float = 1.0

    def values(self, shape: Shape, dtype: DType, rng: RandomSource) -> Array:
        return rng.normal(self.mean, self.std, shape, dtype=dtype)


TRUNCATED_AT = 2.0
"""Maximum distance of `TruncatedNormal` from the mean, in standard deviations."""


@final
@dataclass(frozen=True)
class TruncatedNormal(Initializer):
    """Numbers from a normal distribution that is truncated at 2 std from the mean.

    `std` is that of the distribution before truncation; afterwards it is 0.88 times as large.
    """

    mean: float = 0.0
    std: float = 1.0

    def values(self, shape: Shape, dtype: DType, rng: RandomSource) -> Array:
        _check_floating("TruncatedNormal", dtype)
        least = 0.5 * math.erfc(TRUNCATED_AT / math.sqrt(2))
        quantile = _normal_quantile(
            rng.uniform(least, 1 - least, shape, dtype=compute_dtype(dtype))
        )
        inside = elementwise.clip(quantile, -TRUNCATED_AT, TRUNCATED_AT)  # rounding may exceed it
        return astype(inside * self.std + self.mean, dtype, copy=False)


@final
@dataclass(frozen=True)
class VarianceScaling(Initializer):
    """Numbers of mean 0 and variance scale / fan, so that signals keep their magnitude across
    layers.

    The fan is the number of inputs of an output ("fan_in"), of outputs of an input ("fan_out"), or
    the mean of both ("fan_avg"). A matrix is (inputs, outputs), as in `Dense`; a kernel of a
    convolution is (outputs, inputs, height, width). Source: Glorot and Bengio (2010) for "fan_avg",
    He et al. (2015) for "fan_in" with scale 2, LeCun et al. (1998) for "fan_in" with scale 1.
    """

    scale: float = 1.0
    fan: Fan = "fan_in"
    distribution: Distribution = "uniform"

    def __post_init__(self) -> None:
        if self.fan not in ("fan_in", "fan_out", "fan_avg"):
            raise OptionError(
                f'VarianceScaling: fan must be "fan_in", "fan_out" or "fan_avg", was given '
                f"{self.fan!r}"
            )
        if self.distribution not in ("uniform", "normal", "truncated_normal"):
            raise OptionError(
                f'VarianceScaling: distribution must be "uniform", "normal" or '
                f'"truncated_normal", was given {self.distribution!r}'
            )

    def values(self, shape: Shape, dtype: DType, rng: RandomSource) -> Array:
        inputs, outputs = _fans(shape)
        fan = {"fan_in": inputs, "fan_out": outputs, "fan_avg": (inputs + outputs) / 2}[self.fan]
        std = math.sqrt(self.scale / max(fan, 1))
        if self.distribution == "uniform":
            limit = std * math.sqrt(3)
            return Uniform(-limit, limit).values(shape, dtype, rng)
        if self.distribution == "normal":
            return Normal(0.0, std).values(shape, dtype, rng)
        return TruncatedNormal(0.0, std / STD_OF_TRUNCATED).values(shape, dtype, rng)


@final
@dataclass(frozen=True)
class Orthogonal(Initializer):
    """A matrix with orthonormal columns, or rows if it is wider than high, times `gain`.

    For more than two dimensions, all but the first count as columns. The distribution is uniform
    over all such matrices. Source: Saxe et al. (2014); Mezzadri (2007) for the signs.
    """

    gain: float = 1.0

    def values(self, shape: Shape, dtype: DType, rng: RandomSource) -> Array:
        _check_floating("Orthogonal", dtype)
        if len(shape) < 2:
            raise ShapeError(
                f"Orthogonal: needs 2 dimensions or more, was given {shape}"
                "; use another initializer for vectors, such as zeros"
            )
        rows, columns = shape[0], size_of(shape[1:])
        longer, shorter = max(rows, columns), min(rows, columns)
        q, r = linalg.qr(rng.normal(0.0, 1.0, (longer, shorter), dtype=compute_dtype(dtype)))
        q = q * where(linalg.diagonal(r) < 0, -self.gain, self.gain)
        matrix = q if rows >= columns else matrix_transpose(q)
        return astype(reshape(matrix, shape), dtype, copy=False)


@final
@dataclass(frozen=True)
class Identity(Initializer):
    """`gain` on the diagonal of a matrix, 0 elsewhere."""

    gain: float = 1.0

    def values(self, shape: Shape, dtype: DType, rng: RandomSource) -> Array:
        if len(shape) != 2:
            raise ShapeError(
                f"Identity: needs 2 dimensions, was given {shape}"
                "; use another initializer for other shapes"
            )
        diagonal = eye(*shape, dtype=dtype)
        return diagonal if self.gain == 1 else diagonal * self.gain


@final
@dataclass(frozen=True)
class Mask(Initializer):
    """`value` with probability `probability`, otherwise 0: `Mask(0.8, 1 / 0.8)` is for dropout."""

    probability: float = 0.5
    value: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise OptionError(f"Mask: probability must be in [0, 1], was given {self.probability}")

    def values(self, shape: Shape, dtype: DType, rng: RandomSource) -> Array:
        drawn = rng.uniform(0.0, 1.0, shape, dtype=float32)
        ones = astype(drawn < self.probability, dtype)
        return ones if self.value == 1 else ones * self.value


def _check_floating(name: str, dtype: DType) -> None:
    if not dtype.is_floating:
        raise DTypeError(
            f"{name}: needs a floating point type, was given {dtype}; pass dtype=mm.float32"
        )


def _fans(shape: Shape) -> tuple[int, int]:
    """Return the number of inputs of each output and of outputs of each input."""
    if len(shape) < 2:
        raise ShapeError(
            "VarianceScaling: needs a shape of 2 dimensions or more, (inputs, outputs, …), was "
            f"given {shape}; for a bias use zeros"
        )
    if len(shape) == 2:
        return shape[0], shape[1]
    return size_of(shape[1:]), shape[0] * size_of(shape[2:])


def _polynomial(coefficients: Sequence[float], x: Array) -> Array:
    """Return the polynomial with these coefficients, that of the power 0 first."""
    total = x * coefficients[-1]
    for c in coefficients[-2:0:-1]:
        total = (total + c) * x
    return total + coefficients[0]


# Wichura (1988), algorithm AS 241, PPND7: ratios of polynomials for probabilities near 1/2, and for
# the tails.
_CENTRAL_NUMERATOR = (3.3871327179, 50.434271938, 159.29113202, 59.109374720)
_CENTRAL_DENOMINATOR = (1.0, 17.895169469, 78.757757664, 67.187563600)
_TAIL_NUMERATOR = (1.4234372777, 2.7568153900, 1.3067284816, 0.17023821103)
_TAIL_DENOMINATOR = (1.0, 0.73700164250, 0.12021132975)
STD_OF_TRUNCATED = 0.87962566103423978
"""The standard deviation of a standard normal distribution that is truncated at 2."""


def _normal_quantile(p: Array) -> Array:
    """Return quantiles of the standard normal distribution for p in 0.02 … 0.98, to 3e-7."""
    q = p - 0.5
    r = 0.180625 - q * q
    central = q * _polynomial(_CENTRAL_NUMERATOR, r) / _polynomial(_CENTRAL_DENOMINATOR, r)
    t = elementwise.sqrt(-elementwise.log(elementwise.minimum(p, 1.0 - p))) - 1.6
    tail = elementwise.sign(q) * _polynomial(_TAIL_NUMERATOR, t) / _polynomial(_TAIL_DENOMINATOR, t)
    return where(elementwise.abs(q) <= 0.425, central, tail)


zeros = Constant(0.0)
ones = Constant(1.0)
uniform = Uniform()
normal = Normal()
truncated_normal = TruncatedNormal()
glorot = VarianceScaling(1.0, "fan_avg")
glorot_normal = VarianceScaling(1.0, "fan_avg", "normal")
he = VarianceScaling(2.0, "fan_in")
he_normal = VarianceScaling(2.0, "fan_in", "normal")
lecun = VarianceScaling(1.0, "fan_in")
lecun_normal = VarianceScaling(1.0, "fan_in", "normal")
orthogonal = Orthogonal()
identity = Identity()
mask = Mask()

INITIALIZERS: dict[str, Initializer] = {
    "zeros": zeros,
    "ones": ones,
    "uniform": uniform,
    "normal": normal,
    "truncated_normal": truncated_normal,
    "glorot": glorot,
    "glorot_normal": glorot_normal,
    "he": he,
    "he_normal": he_normal,
    "lecun": lecun,
    "lecun_normal": lecun_normal,
    "orthogonal": orthogonal,
    "identity": identity,
    "mask": mask,
}
"""The initializers that layers accept by name; "glorot", "he" and "lecun" are uniform."""


def initializer(specification: str | float | Callable[..., Array]) -> Callable[..., Array]:
    """Return the initializer of this name, of a constant, or the given function of a shape."""
    if callable(specification):
        return specification
    if isinstance(specification, (int, float)):
        return Constant(float(specification))
    if not isinstance(specification, str):
        raise TypeError(
            f"an initializer is a name, a number or a function of the shape, was given "
            f"{type(specification).__name__}; assign values with parameter.assign(x) after "
            f"build(shape)"
        )
    if specification not in INITIALIZERS:
        equivalent = {"xavier": "glorot", "kaiming": "he"}.get(specification.split("_")[0])
        hint = f'; write "{equivalent}" or "{equivalent}_normal"' if equivalent else ""
        raise OptionError(
            f"initializer {specification!r} is not known; there are {', '.join(INITIALIZERS)}{hint}"
        )
    return INITIALIZERS[specification]
