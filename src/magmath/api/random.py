"""Random arrays: Philox by global element index, the same for every layout and worker count.

Each call draws from the next stream of a generator, the pool's by default, which `seed()` restarts.
A stream is never reused within a seed, so calls are independent. Compiled functions and loops draw
the same sequence as uncompiled code.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NoReturn, final

from numpy import uint64
from numpy.random import SeedSequence

from magmath.api.creation import DTypeLike
from magmath.api.distributions import Distributions
from magmath.api.random_draw import DistributionParameter, DrawState, Size
from magmath.arrays.array import Array
from magmath.core.foreign_names import RANDOM_NAMES, hint, missing_in_module
from magmath.core.integers import require_integer, require_seed
from magmath.engine import session
from magmath.engine.traces.stream_ranges import GENERATOR_STREAMS
from magmath.engine.traces.stream_state import StreamState
from magmath.errors import OptionError

__all__ = [
    "Distributions", "Generator", "beta", "binomial", "bytes", "chisquare", "choice",
    "default_rng", "dirichlet", "exponential", "f", "gamma", "geometric", "get_state", "gumbel",
    "hypergeometric", "integers", "laplace", "logistic", "lognormal", "logseries", "multinomial",
    "multivariate_hypergeometric", "multivariate_normal", "negative_binomial",
    "noncentral_chisquare", "noncentral_f", "normal", "pareto", "permutation", "permuted",
    "poisson", "power", "rand", "randint", "randn", "random", "random_sample", "ranf", "rayleigh",
    "sample", "seed", "set_state", "shuffle", "standard_cauchy", "standard_exponential",
    "standard_gamma", "standard_normal", "standard_t", "triangular", "uniform", "vonmises", "wald",
    "weibull", "zipf",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> NoReturn:
        raise missing_in_module("magmath.random", __all__, name, hint(RANDOM_NAMES, name))


@final
class Generator(Distributions):
    """A random number generator with its own seed and sequence.

        rng = mm.random.Generator(1)
        noise = rng.normal(shape=(1000,))

    Generators with the same seed draw the same sequence, in any pool.
    """

    def __init__(self, seed: int) -> None:
        self._own = StreamState(require_seed("random.Generator: seed", seed), GENERATOR_STREAMS)
        self._seeds = SeedSequence(self._own.seed)

    @property
    def _state(self) -> StreamState:
        return self._own

    def spawn(self, n_children: int) -> list[Generator]:
        """Return new generators, whose seeds follow from that of this one by NumPy's hash, and
        differ from those of earlier calls."""
        count = require_integer("random.Generator.spawn: n_children", n_children, 0)
        states = [child.generate_state(1, uint64)[0] for child in self._seeds.spawn(count)]
        return [Generator(int(state) >> 2) for state in states]

    def __repr__(self) -> str:
        return f"Generator(seed={self._state.seed}, drawn={self._state.next - GENERATOR_STREAMS})"


def default_rng(seed: int | Sequence[int] | Generator | None = None) -> Generator:
    """Return a generator with this seed, by default one from the system's entropy; a generator is
    returned as it is.

    The name is NumPy's.
    """
    if isinstance(seed, Generator):
        return seed
    if isinstance(seed, Sequence) or (isinstance(seed, int) and seed >= 1 << 63):
        seed = int(SeedSequence(seed).generate_state(1, uint64)[0]) >> 2
    return Generator(secrets.randbits(62) if seed is None else seed)


def get_state() -> dict[str, int]:
    """Return the state of the generator of the current pool, as integers that can be saved.

    `set_state` continues from it, in this process or another one: the same numbers follow, also in
    layers such as Dropout, and in compiled functions.
    """
    engine = session.engine()
    current, initial = engine.stream_state, engine.initial_stream_state
    return {"seed": current.seed, "next": current.next, "initial": initial.next}


def set_state(state: Mapping[str, int]) -> None:
    """Continue the generator of the current pool from a state that `get_state` returned."""
    names = ("seed", "next", "initial")
    if not isinstance(state, Mapping) or set(state) != set(names):
        raise OptionError(
            f"random.set_state: needs the dictionary that get_state returned, was given {state!r}"
        )
    seed, number, initial = [
        require_integer(f"random.set_state: {name}", state[name], 0) for name in names
    ]
    engine = session.engine()
    require_seed("random.set_state: seed", seed)
    engine.stream_state.resume(seed, number)
    engine.initial_stream_state.resume(seed, initial)


def seed(value: int) -> None:
    """Restart the generator of the current pool with another seed."""
    engine, number = session.engine(), require_seed("random.seed", value)
    engine.stream_state.restart(number)
    engine.initial_stream_state.restart(number)


def drawing_from(state: StreamState) -> AbstractContextManager[object]:
    """Make the functions of this module draw from `state` instead of the pool's generator, in this
    thread."""
    return session.engine().block_stream.replaced(state)


def initial_values_from(state: StreamState) -> AbstractContextManager[object]:
    """Draw initial values of parameters from `state` instead of the pool's generator, in this
    thread."""
    return session.engine().block_initial_stream.replaced(state)


@final
class PoolGenerator(Distributions):
    """The generator of the current pool, whose methods are the functions of this module."""

    @property
    def _state(self) -> DrawState:
        return session.engine().stream_state


_pool = PoolGenerator()
beta = _pool.beta
binomial = _pool.binomial
bytes = _pool.bytes
chisquare = _pool.chisquare
choice = _pool.choice
dirichlet = _pool.dirichlet
exponential = _pool.exponential
f = _pool.f
gamma = _pool.gamma
geometric = _pool.geometric
gumbel = _pool.gumbel
hypergeometric = _pool.hypergeometric
integers = _pool.integers
laplace = _pool.laplace
logistic = _pool.logistic
lognormal = _pool.lognormal
logseries = _pool.logseries
multinomial = _pool.multinomial
multivariate_hypergeometric = _pool.multivariate_hypergeometric
multivariate_normal = _pool.multivariate_normal
negative_binomial = _pool.negative_binomial
noncentral_chisquare = _pool.noncentral_chisquare
noncentral_f = _pool.noncentral_f
normal = _pool.normal
pareto = _pool.pareto
permutation = _pool.permutation
permuted = _pool.permuted
poisson = _pool.poisson
power = _pool.power
random = random_sample = ranf = sample = _pool.random
rayleigh = _pool.rayleigh
shuffle = _pool.shuffle
standard_cauchy = _pool.standard_cauchy
standard_exponential = _pool.standard_exponential
standard_gamma = _pool.standard_gamma
standard_normal = _pool.standard_normal
standard_t = _pool.standard_t
triangular = _pool.triangular
uniform = _pool.uniform
vonmises = _pool.vonmises
wald = _pool.wald
weibull = _pool.weibull
zipf = _pool.zipf


def randint(
    low: DistributionParameter,
    high: DistributionParameter = None,
    size: Size = None,
    dtype: DTypeLike = None,
) -> Array:
    """Return `integers` by NumPy's older name."""
    return integers(low, high, size=size, dtype=dtype)


def rand(*shape: int) -> Array:
    """Return `random` with the extents as arguments."""
    return uniform(size=shape)


def randn(*shape: int) -> Array:
    """Return `standard_normal` with the extents as arguments."""
    return normal(size=shape)
