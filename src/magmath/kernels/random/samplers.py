"""Random numbers by rejection or search: gamma, Poisson, binomial and other distributions.

The value of an element depends only on seed, stream and the element's index, as in
`kernels/random/philox.py`, but an element may need any number of random words: block j of element i
is block i + j · 2^48 of the stream. All arithmetic is rounded operation by operation, so every
processor accepts the same candidates.

Sources: Marsaglia and Tsang, "A simple method for generating gamma variables" (2000); Hörmann, "The
transformed rejection method for generating Poisson random variables" and "The generation of
binomial random variates" (1993); Stadlober, "The ratio of uniforms approach for generating discrete
random variates" (1990); Devroye, "Non-uniform random variate generation" (1986), chapter X.6; Best
and Fisher, "Efficient simulation of the von Mises distribution" (1979).
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import getsource
from typing import Final

import torch

from magmath.codegen.aot_cache import AotModule
from magmath.core.index_set import Tile, tile_shape
from magmath.core.parameter_ranges import ParameterRange
from magmath.errors import OptionError
from magmath.kernels.dtype_names import dtype_name
from magmath.kernels.random.philox import BLOCK, CONSTANTS, NORMALS, runs_of
from magmath.kernels.random.portable_math import exp_series

_NEXT_BLOCK: Final = 1 << 48

_HELPERS = (
    getsource(exp_series).replace("Any", "float64")
    + f'''
def exp_of(x: float64) -> float64:
    """exp(x) for x up to 700; 0 for numbers below the range."""
    inside = x if x > -746.0 else -746.0
    n = rint(inside * 1.4426950408889634074)
    power = exp_series(inside - n * 6.93145751953125e-1 - n * 1.42860682030941723212e-6)
    whole = int64(n)
    half = whole >> 1
    power = power * ((half + 1023) << 52).view(float64)
    return power * ((whole - half + 1023) << 52).view(float64)

def log1p_of(x: float64) -> float64:
    """log(1 + x) for x in [-1/2, 1/2] (Kahan)."""
    y = 1.0 + x
    return log_of(y) * x / (y - 1.0) if y != 1.0 else x

def block(words: uint64[1], seed: uint64, stream: uint64, counter: uint64):
    """The four words of one block."""
{BLOCK}
    words[0] = word_0
    words[1] = word_1
    words[2] = word_2
    words[3] = word_3

def number(words: uint64[1], place: int64) -> float64:
    """A number between 0 and 1, without both, from two words."""
    word = int64((words[place] | words[place + 1] << 32) >> 12)
    return (float64(word) + 0.5) * 2.220446049250313e-16

def log_factorial(k: float64) -> float64:
    """log(k!) by Stirling's series; the product itself for small k."""
    product = 1.0
    for i in range(int64(k) if k < 10 else 0):
        product = product * float64(i + 1)
    y = k + 1.0
    series = 1 / 12 - (1 / 360 - 1 / 1260 / (y * y)) / (y * y)
    large = (k + 0.5) * log_of(y) - y + 0.9189385332046727 + series / y
    return large if k >= 10 else log_of(product)
'''
)

_GAMMA = """
def draw_gamma(
    values: float64[1], seed: uint64, stream: uint64, element: uint64, shape: float64
):
    \"\"\"A gamma number as values[2] · exp(values[3]), by Marsaglia and Tsang.

    A shape below 1 draws one for shape + 1, and multiplies it by U^(1/shape).
    \"\"\"
    words: uint64[1] = stack(32)
    d = (shape + 1.0 if shape < 1 else shape) - 1 / 3
    c = 1.0 / sqrt(9.0 * d)
    counter = element
    accepted = False
    v = 1.0
    while not accepted:
        block(words, seed, stream, counter)
        normal_pair(values, 0, number(words, 0), number(words, 2))
        x = values[0]
        block(words, seed, stream, counter + NEXT_BLOCK)
        v = 1.0 + c * x
        if v > 0:
            v = v * v * v
            bound = 0.5 * x * x + d - d * v + d * log_of(v)
            accepted = log_of(number(words, 0)) < bound
        counter = counter + 2 * NEXT_BLOCK
    values[2] = d * v
    values[3] = log_of(number(words, 2)) / shape if shape < 1 else 0.0

def gamma(seed: uint64, stream: uint64, element: uint64, shape: float64) -> float64:
    values: float64[1] = stack(32)
    draw_gamma(values, seed, stream, element, shape)
    return values[2] * exp_of(values[3]) if shape > 0 else 0.0

def log_gamma(seed: uint64, stream: uint64, element: uint64, shape: float64) -> float64:
    values: float64[1] = stack(32)
    draw_gamma(values, seed, stream, element, shape)
    return log_of(values[2]) + values[3]
"""

_POISSON = """
def poisson_by_search(u: float64, lam: float64) -> float64:
    \"\"\"The smallest k whose cumulative probability reaches u.\"\"\"
    probability = exp_of(-lam)
    total = probability
    k = 0.0
    while u > total and k < 200:
        k = k + 1.0
        probability = probability * lam / k
        total = total + probability
    return k

def poisson(seed: uint64, stream: uint64, element: uint64, lam: float64) -> float64:
    words: uint64[1] = stack(32)
    if lam < 10:
        block(words, seed, stream, element)
        return poisson_by_search(number(words, 0), lam)
    log_lam = log_of(lam)
    b = 0.931 + 2.53 * sqrt(lam)
    a = 0.02483 * b - 0.059
    scale = log_of(1.1239 + 1.1328 / (b - 3.4))
    least = 0.9277 - 3.6224 / (b - 2.0)
    counter = element
    while True:
        block(words, seed, stream, counter)
        u = number(words, 0) - 0.5
        v = number(words, 2)
        side = 0.5 - abs(u)
        k = floor((2.0 * a / side + b) * u + lam + 0.43)
        if side >= 0.07 and v <= least:
            return k
        if k >= 0 and (side >= 0.013 or v <= side):
            bound = k * log_lam - lam - log_factorial(k)
            if log_of(v) + scale - log_of(a / (side * side) + b) <= bound:
                return k
        counter = counter + NEXT_BLOCK
"""

_BINOMIAL = """
def binomial_by_search(u: float64, n: float64, p: float64) -> float64:
    \"\"\"The smallest k whose cumulative probability reaches u.\"\"\"
    probability = exp_of(n * log1p_of(-p))
    ratio = p / (1.0 - p)
    total = probability
    k = 0.0
    while u > total and k < n and k < 200:
        k = k + 1.0
        probability = probability * ratio * (n - k + 1.0) / k
        total = total + probability
    return k

def binomial_up_to_half(
    seed: uint64, stream: uint64, element: uint64, n: float64, p: float64
) -> float64:
    words: uint64[1] = stack(32)
    if n * p < 10:
        block(words, seed, stream, element)
        return binomial_by_search(number(words, 0), n, p)
    odds = p / (1.0 - p)
    deviation = sqrt(n * p * (1.0 - p))
    b = 1.15 + 2.53 * deviation
    a = 0.0248 * b + 0.01 * p - 0.0873
    least = 0.92 - 4.2 / b
    alpha = (2.83 + 5.1 / b) * deviation
    mode = floor((n + 1.0) * p)
    highest = log_factorial(mode) + log_factorial(n - mode)
    counter = element
    while True:
        block(words, seed, stream, counter)
        u = number(words, 0) - 0.5
        v = number(words, 2)
        side = 0.5 - abs(u)
        k = floor((2.0 * a / side + b) * u + n * p + 0.5)
        if side >= 0.07 and v <= least:
            return k
        if k >= 0 and k <= n:
            bound = highest - log_factorial(k) - log_factorial(n - k) + (k - mode) * log_of(odds)
            if log_of(v * alpha / (a / (side * side) + b)) <= bound:
                return k
        counter = counter + NEXT_BLOCK

def binomial(seed: uint64, stream: uint64, element: uint64, n: float64, p: float64) -> float64:
    k = binomial_up_to_half(seed, stream, element, n, 1.0 - p if p > 0.5 else p)
    return n - k if p > 0.5 else k
"""

_HYPERGEOMETRIC = """
def one_by_one(
    words: uint64[1], seed: uint64, stream: uint64, element: uint64, good: float64, bad: float64,
    drawn: float64
) -> float64:
    \"\"\"How many good items there are among a few that are drawn one after the other.\"\"\"
    counter = element
    left = good
    total = good + bad
    for i in range(int64(drawn)):
        block(words, seed, stream, counter)
        if number(words, 0) * total < left:
            left = left - 1.0
        total = total - 1.0
        counter = counter + NEXT_BLOCK
    return good - left

def by_ratio_of_uniforms(
    words: uint64[1], seed: uint64, stream: uint64, element: uint64, few: float64, many: float64,
    drawn: float64
) -> float64:
    \"\"\"How many of the rarer items are drawn, by Stadlober's method.\"\"\"
    total = few + many
    share = few / total
    variance = (total - drawn) * drawn * share * (1.0 - share) / (total - 1.0)
    centre = drawn * share + 0.5
    deviation = sqrt(variance + 0.5)
    width = 1.7155277699214135 * deviation + 0.8989161620588988
    mode = floor((drawn + 1.0) * (few + 1.0) / (total + 2.0))
    highest = log_factorial(mode) + log_factorial(few - mode) + log_factorial(drawn - mode)
    highest = highest + log_factorial(many - drawn + mode)
    most = few if few < drawn else drawn
    counter = element
    while True:
        block(words, seed, stream, counter)
        u = number(words, 0)
        k = floor(centre + width * (number(words, 2) - 0.5) / u)
        if k >= 0 and k <= most:
            bound = highest - log_factorial(k) - log_factorial(few - k) - log_factorial(drawn - k)
            bound = bound - log_factorial(many - drawn + k)
            if 2.0 * log_of(u) <= bound:
                return k
        counter = counter + NEXT_BLOCK

def hypergeometric(
    seed: uint64, stream: uint64, element: uint64, good: float64, bad: float64, sample: float64
) -> float64:
    words: uint64[1] = stack(32)
    total = good + bad
    size = sample if sample < total else total
    drawn = size if size < total - size else total - size
    k = 0.0
    if drawn < 10:
        k = one_by_one(words, seed, stream, element, good, bad, drawn)
    else:
        k = by_ratio_of_uniforms(
            words, seed, stream, element, good if good < bad else bad,
            bad if good < bad else good, drawn
        )
        k = k if good < bad else drawn - k
    return k if drawn == size else good - k
"""

_ZIPF = """
def zipf(seed: uint64, stream: uint64, element: uint64, a: float64) -> float64:
    words: uint64[1] = stack(32)
    if a >= 1000:
        return 1.0
    power = a - 1.0
    b = exp_of(power * 0.6931471805599453)
    least = exp_of(-43.0 * power)
    counter = element
    while True:
        block(words, seed, stream, counter)
        u = number(words, 0)
        u = u * least + (1.0 - u)
        exponent = -log_of(u) / power
        x = floor(exp_of(exponent if exponent < 43.0 else 43.0))
        x = x if x >= 1 else 1.0
        growth = power * (log1p_of(1.0 / x) if x > 1 else 0.6931471805599453)
        ratio = exp_of(growth)
        excess = growth * (1.0 + 0.5 * growth) if growth < 1e-5 else ratio - 1.0
        if number(words, 2) * x * excess / (b - 1.0) <= ratio / b:
            return x
        counter = counter + NEXT_BLOCK
"""

_VONMISES = """
def vonmises_cosine(
    seed: uint64, stream: uint64, element: uint64, kappa: float64
) -> float64:
    \"\"\"The cosine of an angle from von Mises' distribution around 0, for kappa up to 1e6.\"\"\"
    words: uint64[1] = stack(32)
    pair: float64[1] = stack(32)
    narrow = kappa if kappa < 1e6 else 1e6
    k = narrow if narrow > 1e-8 else 1e-8
    s = 1.0 / k + k
    if k >= 1e-5:
        r = 1.0 + sqrt(1.0 + 4.0 * k * k)
        rho = (r - sqrt(2.0 * r)) / (2.0 * k)
        s = (1.0 + rho * rho) / (2.0 * rho)
    counter = element
    while True:
        block(words, seed, stream, counter)
        normal_pair(pair, 0, number(words, 0), number(words, 2))
        z = pair[0] / sqrt(pair[0] * pair[0] + pair[1] * pair[1])
        block(words, seed, stream, counter + NEXT_BLOCK)
        v = number(words, 0)
        w = (1.0 + s * z) / (s + z)
        y = k * (s - w)
        if y * (2.0 - y) - v >= 0 or log_of(y / v) + 1.0 - y >= 0:
            return w
        counter = counter + 2 * NEXT_BLOCK
"""

_FILL = '''
def fill_{name}_{T}(
    out: {T}[1], {memory}, {steps}, rows: int64[1], height: int64, starts: int64[1],
    stops: int64[1], count: int64, seed_bits: int64, stream_bits: int64
):
    """Fill `out` with the elements rows[r] + starts[s] … rows[r] + stops[s] - 1, in this order."""
    seed = uint64(seed_bits)
    stream = uint64(stream_bits)
    position = 0
    for r in range(height):
        for s in range(count):
            for element in range(rows[r] + starts[s], rows[r] + stops[s]):
                out[position] = {name}(seed, stream, uint64(element), {values})
                position = position + 1
'''

_REAL, _COUNT = ("float32", "float64"), ("int64",)
_DISTRIBUTIONS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "gamma": (("shape",), _REAL),
    "log_gamma": (("shape",), _REAL),
    "poisson": (("lam",), _COUNT),
    "binomial": (("n", "p"), _COUNT),
    "hypergeometric": (("good", "bad", "sample"), _COUNT),
    "zipf": (("a",), _COUNT),
    "vonmises_cosine": (("kappa",), _REAL),
}
"""The parameters of each distribution, and the types of its numbers."""


def _filler(name: str, parameters: Sequence[str], dtype: str) -> str:
    """Return the source of the function that fills arrays of a type."""
    return _FILL.format(
        name=name, T=dtype,
        memory=", ".join(f"{p}: float64[1]" for p in parameters),
        steps=", ".join(f"{p}_step: int64" for p in parameters),
        values=", ".join(f"{p}[position * {p}_step]" for p in parameters),
    )  # fmt: skip


_CODE = AotModule(
    NORMALS + _HELPERS + _GAMMA + _POISSON + _BINOMIAL + _HYPERGEOMETRIC + _ZIPF + _VONMISES
    + "".join(
        _filler(name, parameters, dtype)
        for name, (parameters, dtypes) in _DISTRIBUTIONS.items()
        for dtype in dtypes
    ),
    [f"fill_{name}_{dtype}" for name, (_, dtypes) in _DISTRIBUTIONS.items() for dtype in dtypes],
    constants={**CONSTANTS, "NEXT_BLOCK": _NEXT_BLOCK},
    arithmetic="rounded",
)  # fmt: skip


def fill(
    name: str,
    out: torch.Tensor,
    parameters: Sequence[torch.Tensor],
    ranges: Sequence[ParameterRange],
    tile: Tile,
    shape: Sequence[int],
    seed: int,
    stream: int,
) -> None:
    """Fill a tile of an array of the given shape with numbers of a distribution.

    `parameters` are float64, each 0-d or of the tile's shape. `out` is int64 for counts, otherwise
    floating point; half types are computed in float32, and results for other devices on the CPU.
    Raises OptionError for a parameter that is not in its range.
    """
    assert tuple(out.shape) == tile_shape(tile), "the tensor has the tile's shape"
    for values, allowed in zip(parameters, ranges, strict=True):
        _check(values, allowed)
    if not out.numel():
        return
    filled = out
    dtype = torch.float32 if out.dtype in (torch.float16, torch.bfloat16) else out.dtype
    if dtype != out.dtype or out.device.type != "cpu" or not out.is_contiguous():
        filled = torch.empty(out.shape, dtype=dtype)
    inputs = [values.cpu().contiguous() for values in parameters]
    runs = runs_of(tile, shape)  # the addresses hold no reference
    _CODE.function(f"fill_{name}_{dtype_name(dtype)}")(
        filled.data_ptr(), *[x.data_ptr() for x in inputs], *[int(x.ndim > 0) for x in inputs],
        *runs.arguments(), seed, stream,
    )  # fmt: skip
    if filled is not out:
        out.copy_(filled)


def _check(values: torch.Tensor, allowed: ParameterRange) -> None:
    """Raise OptionError unless all values are in the range; NaN is in none."""
    inside = (values >= allowed.low) & (values <= allowed.high)
    if not bool(inside.all()):
        raise OptionError(allowed.message(values[~inside].reshape(-1)[0].item()))
