"""Distributions: those that their names promise, with parameters as in NumPy, the same numbers on
every pool."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

import magmath as mm
from arrays import KINDS
from engines import current
from magmath.errors import DTypeError, MagmathError, OptionError, ShapeError

COUNT = 20_000
Distribution = Callable[..., Any]

# The calls, and SciPy's distributions with the same parameters.
CONTINUOUS: list[tuple[str, tuple[Any, ...], Any]] = [
    ("exponential", (2.5,), stats.expon(scale=2.5)),
    ("standard_exponential", (), stats.expon()),
    ("laplace", (1.0, 0.5), stats.laplace(1.0, 0.5)),
    ("logistic", (-1.0, 2.0), stats.logistic(-1.0, 2.0)),
    ("gumbel", (1.0, 2.0), stats.gumbel_r(1.0, 2.0)),
    ("weibull", (0.7,), stats.weibull_min(0.7)),
    ("rayleigh", (3.0,), stats.rayleigh(scale=3.0)),
    ("pareto", (4.0,), stats.lomax(4.0)),
    ("lognormal", (0.5, 0.25), stats.lognorm(0.25, scale=np.exp(0.5))),
    ("gamma", (0.05, 2.0), stats.gamma(0.05, scale=2.0)),
    ("gamma", (1.0,), stats.gamma(1.0)),
    ("gamma", (37.5, 0.1), stats.gamma(37.5, scale=0.1)),
    ("standard_gamma", (1e6,), stats.gamma(1e6)),
    ("beta", (0.2, 0.3), stats.beta(0.2, 0.3)),
    ("beta", (8.0, 1.5), stats.beta(8.0, 1.5)),
    ("chisquare", (1,), stats.chi2(1)),
    ("chisquare", (7.5,), stats.chi2(7.5)),
    ("standard_t", (3,), stats.t(3)),
    ("f", (5, 9), stats.f(5, 9)),
    ("standard_cauchy", (), stats.cauchy()),
    ("triangular", (-1.0, 0.5, 4.0), stats.triang(0.3, -1.0, 5.0)),
    ("power", (0.4,), stats.powerlaw(0.4)),
    ("wald", (3.0, 2.0), stats.invgauss(1.5, scale=2.0)),
    ("wald", (0.1, 500.0), stats.invgauss(0.0002, scale=500.0)),
    ("vonmises", (0.0, 1e-9), stats.uniform(-np.pi, 2 * np.pi)),
    ("vonmises", (0.0, 1e-6), stats.vonmises(1e-6)),
    ("vonmises", (0.0, 0.7), stats.vonmises(0.7)),
    ("vonmises", (0.0, 40.0), stats.vonmises(40.0)),
    ("vonmises", (1.5, 1e8), stats.norm(1.5, 1e-4)),
    ("noncentral_chisquare", (3.5, 2.0), stats.ncx2(3.5, 2.0)),
    ("noncentral_chisquare", (0.5, 20.0), stats.ncx2(0.5, 20.0)),
    ("noncentral_f", (3, 9, 2.0), stats.ncf(3, 9, 2.0)),
    ("normal", (3.0, 0.5), stats.norm(3.0, 0.5)),
    ("uniform", (-1.0, 4.0), stats.uniform(-1.0, 5.0)),
]
DISCRETE: list[tuple[str, tuple[Any, ...], Any]] = [
    ("poisson", (0.3,), stats.poisson(0.3)),
    ("poisson", (9.9,), stats.poisson(9.9)),
    ("poisson", (10.0,), stats.poisson(10.0)),
    ("poisson", (123.4,), stats.poisson(123.4)),
    ("binomial", (1, 0.3), stats.binom(1, 0.3)),
    ("binomial", (15, 0.9), stats.binom(15, 0.9)),
    ("binomial", (20, 0.5), stats.binom(20, 0.5)),
    ("binomial", (200, 0.7), stats.binom(200, 0.7)),
    ("binomial", (10**9, 3e-9), stats.binom(10**9, 3e-9)),
    ("geometric", (0.2,), stats.geom(0.2)),
    ("geometric", (0.97,), stats.geom(0.97)),
    ("negative_binomial", (3, 0.4), stats.nbinom(3, 0.4)),
    ("integers", (2, 9), stats.randint(2, 9)),
    ("hypergeometric", (3, 20, 5), stats.hypergeom(23, 3, 5)),
    ("hypergeometric", (20, 3, 20), stats.hypergeom(23, 20, 20)),
    ("hypergeometric", (300, 200, 100), stats.hypergeom(500, 300, 100)),
    ("hypergeometric", (200, 300, 450), stats.hypergeom(500, 200, 450)),
    ("hypergeometric", (30, 10**6, 10**5), stats.hypergeom(10**6 + 30, 30, 10**5)),
    ("zipf", (1.9,), stats.zipf(1.9)),
    ("zipf", (4.0,), stats.zipf(4.0)),
    ("logseries", (0.05,), stats.logser(0.05)),
    ("logseries", (0.97,), stats.logser(0.97)),
]


def named(case: tuple[str, tuple[Any, ...], Any]) -> str:
    return f"{case[0]}{case[1]}"


@pytest.mark.parametrize("case", CONTINUOUS, ids=named)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_continuous_distribution(case: Any, dtype: str) -> None:
    """By the test of Kolmogorov and Smirnov; the seed makes the result the same each time."""
    name, parameters, expected = case
    drawn = getattr(mm.random.Generator(8), name)(*parameters, size=COUNT, dtype=dtype)
    assert drawn.dtype == getattr(mm, dtype)
    assert stats.kstest(drawn.numpy(), expected.cdf).pvalue > 1e-3


@pytest.mark.parametrize("case", DISCRETE, ids=named)
def test_discrete_distribution(case: Any) -> None:
    """By Pearson's test of the frequencies, rare values together."""
    name, parameters, expected = case
    drawn = getattr(mm.random.Generator(3), name)(*parameters, size=COUNT)
    assert drawn.dtype == mm.int64
    actual = np.bincount(np.minimum(drawn.numpy(), 10_000))
    frequencies = expected.pmf(np.arange(len(actual))) * COUNT
    usual = frequencies > 10
    rest = COUNT - frequencies[usual].sum()
    squares = (actual[usual] - frequencies[usual]) ** 2 / frequencies[usual]
    total = squares.sum() + (actual[~usual].sum() - rest) ** 2 / max(rest, 5.0)
    assert stats.chi2(usual.sum()).sf(total) > 1e-3


@pytest.mark.parametrize(
    ("name", "parameters", "mean", "deviation"),
    [("poisson", (1e10,), 1e10, 1e5), ("binomial", (10**10, 0.9), 9e9, 3e4),
     ("binomial", (10**4, 0.5), 5000, 50)],
)  # fmt: skip
def test_moments_of_large_counts(name: str, parameters: Any, mean: float, deviation: float) -> None:
    drawn = getattr(mm.random.Generator(1), name)(*parameters, size=COUNT).numpy()
    assert abs(drawn.mean() - mean) < 4 * deviation / COUNT**0.5
    assert drawn.std() == pytest.approx(deviation, rel=0.03)


def test_edges_of_parameters() -> None:
    source = mm.random.Generator(2)
    for drawn in (
        source.poisson(0.0, 50), source.binomial(0, 0.5, 50), source.binomial(9, 0.0, 50),
        source.gamma(0.0, size=50), source.exponential(0.0, 50), source.laplace(0.0, 0.0, 50),
        source.poisson(5.0, (0, 3)),
    ):  # fmt: skip
        np.testing.assert_array_equal(drawn.numpy(), 0)
    assert set(source.binomial(9, 1.0, 50).tolist()) == {9}
    assert set(source.geometric(1.0, 50).tolist()) == {1}
    tiny = source.beta(1e-3, 1e-3, 1000).numpy()  # 0/0 without logarithms
    assert np.isfinite(tiny).all()
    assert (tiny > 0.5).mean() == pytest.approx(0.5, abs=0.1)


# Parameters and shapes ----------------------------------------------------------------------------

# Each distribution with array parameters, which broadcast to (2, 3).
BROADCAST: dict[str, tuple[Any, ...]] = {
    "uniform": ([[0.0], [10.0]], [20.0, 30.0, 40.0]),
    "normal": ([[0.0], [100.0]], [1.0, 2.0, 3.0]),
    "integers": ([[0], [100]], [200, 300, 400]),
    "lognormal": ([[0.0], [1.0]], [0.1, 0.2, 0.3]),
    "exponential": ([[1.0, 2.0, 3.0]] * 2,),
    "laplace": ([[0.0], [100.0]], [1.0, 2.0, 3.0]),
    "logistic": ([[0.0], [100.0]], [1.0, 2.0, 3.0]),
    "gumbel": ([[0.0], [100.0]], [1.0, 2.0, 3.0]),
    "weibull": ([[1.0, 2.0, 3.0]] * 2,),
    "rayleigh": ([[1.0, 2.0, 3.0]] * 2,),
    "pareto": ([[5.0, 6.0, 7.0]] * 2,),
    "geometric": ([[0.1, 0.5, 0.9]] * 2,),
    "gamma": ([[0.5], [50.0]], [1.0, 2.0, 3.0]),
    "standard_gamma": ([[1.0, 2.0, 3.0]] * 2,),
    "chisquare": ([[1.0, 20.0, 300.0]] * 2,),
    "standard_t": ([[10.0, 20.0, 30.0]] * 2,),
    "f": ([[5.0], [9.0]], [7.0, 8.0, 9.0]),
    "beta": ([[0.5], [5.0]], [1.0, 2.0, 3.0]),
    "poisson": ([[1.0, 20.0, 300.0]] * 2,),
    "binomial": ([[10], [1000]], [0.1, 0.5, 0.9]),
    "negative_binomial": ([[3.0], [30.0]], [0.1, 0.5, 0.9]),
    "triangular": ([[-1.0], [0.0]], [1.0, 1.5, 2.0], [2.5]),
    "power": ([[1.0, 2.0, 0.5]] * 2,),
    "wald": ([[1.0], [4.0]], [1.0, 5.0, 20.0]),
    "vonmises": ([[0.0], [1.0]], [5.0, 50.0, 1e7]),
    "noncentral_chisquare": ([[1.0], [8.0]], [1.0, 2.0, 3.0]),
    "noncentral_f": ([[5.0], [9.0]], [17.0, 18.0, 19.0], [2.0]),
    "hypergeometric": ([[10], [1000]], [10, 500, 4], [9]),
    "zipf": ([[4.5, 5.0, 6.0]] * 2,),
    "logseries": ([[0.1, 0.5, 0.9]] * 2,),
}


@pytest.mark.parametrize("name", BROADCAST)
@pytest.mark.parametrize("made", [list, np.asarray, mm.asarray])
def test_parameters_may_be_arrays(name: str, made: Callable[[Any], Any]) -> None:
    """The shape of the result is NumPy's, and each element has the mean of its own parameters."""
    given = [made(parameter) for parameter in BROADCAST[name]]
    ours, theirs = getattr(mm.random.Generator(4), name), np.random.default_rng(4)
    assert ours(*given).shape == (2, 3)
    drawn = ours(*given, size=(4000, 2, 3)).numpy()
    expected = getattr(theirs, name)(*BROADCAST[name], size=(4000, 2, 3))
    deviation = (drawn.std(0) ** 2 + expected.std(0) ** 2) ** 0.5 / 4000**0.5
    assert (abs(drawn.mean(0) - expected.mean(0)) < 5 * deviation + 1e-6).all()
    with pytest.raises(ShapeError, match=rf"random.{name.removeprefix('standard_')}|random.{name}"):
        ours(*given, size=(4, 2, 5))


@pytest.mark.parametrize("name", [*BROADCAST, "dirichlet", "multinomial", "multivariate_normal",
                                  "standard_cauchy", "multivariate_hypergeometric",
                                  "choice", "permuted", "shuffle", "permutation"])  # fmt: skip
def test_parameters_have_numpys_names_and_order(name: str) -> None:
    text = getattr(np.random.Generator, name).__doc__.splitlines()
    line = next(row for row in text if f"{name}(" in row)
    theirs = re.findall(r"(\w+)(?:=[^,)]*)?[,)]", line.partition("(")[2])
    ours = list(inspect.signature(getattr(mm.random, name)).parameters)
    renamed = {"loc": "mean", "scale": "std"} if name == "normal" else {}
    ignored = {"check_valid", "tol", "method", "out", "dtype", "endpoint", "self", "shuffle"}
    for i, parameter in enumerate(p for p in theirs if p not in ignored):
        if name in ("uniform", "normal", "integers") and parameter == "size":
            assert ours[i] == "shape"
            assert "size" in ours
        else:
            assert ours[i] == renamed.get(parameter, parameter)


# The same numbers everywhere ----------------------------------------------------------------------


def drawn() -> list[Any]:
    mm.random.seed(11)
    source = mm.random
    results = [getattr(source, name)(*given) for name, given in BROADCAST.items()]
    results += [getattr(source, name)(*given, size=37) for name, given, _ in CONTINUOUS + DISCRETE]
    results += [
        source.multivariate_normal([1.0, 2.0], [[2.0, 1.0], [1.0, 3.0]], 5),
        source.dirichlet([0.5, 1.0, 2.0], 5),
        source.multinomial(20, [0.2, 0.5, 0.3], 5),
        source.multivariate_hypergeometric([5, 9, 30, 1], 20, 5),
        source.permuted(np.arange(12.0).reshape(3, 4), axis=1),
        source.choice(9, 5, p=np.arange(9) / 36),
        source.choice(9, 5, False, np.arange(9) / 36),
    ]
    return [result.numpy() for result in results]


def test_numbers_are_the_same_on_every_pool() -> None:
    """Up to the last digits of the functions that are applied to them; counts are equal."""
    expected = drawn()
    for kind, workers in [*KINDS, ("shared", 4), ("exact", 3)]:
        with current(kind, workers):
            for actual, known in zip(drawn(), expected, strict=True):
                np.testing.assert_allclose(actual, known, rtol=1e-5 * (known.dtype.kind == "f"))


def test_numbers_do_not_depend_on_the_layout() -> None:
    for name in ("gamma", "poisson", "exponential"):
        whole = getattr(mm.random.Generator(6), name)(7.0, size=(13, 5)).numpy()
        with current("shared", 3):
            for layout in (mm.Layout.split(0), mm.Layout.split(1), mm.Layout.cyclic(0, 2)):
                source = mm.random.Generator(6)
                part = getattr(source, name)(7.0, size=(13, 5), layout=layout)
                assert str(part.layout) != "R"
                np.testing.assert_array_equal(part.numpy(), whole)


@pytest.mark.parametrize("name", ["gamma", "poisson", "binomial", "laplace"])
def test_compiled_functions_and_loops_draw_what_a_loop_draws(name: str) -> None:
    given = {"gamma": (2.0,), "poisson": (30.0,), "binomial": (40, 0.5), "laplace": (1.0,)}[name]

    def step(x: Any, source: Any) -> Any:
        return x + mm.astype(getattr(source, name)(*given, size=4), mm.float32)

    results = []
    for way in ("eager", "compiled", "looped"):
        source, x = mm.random.Generator(5), mm.zeros(4)
        if way == "looped":
            x = mm.fori_loop(0, 5, lambda i, x, source=source: step(x, source), x)
        else:
            ran = mm.compile(lambda x, source=source: step(x, source))
            for _ in range(5):
                x = ran(x) if way == "compiled" else step(x, source)
        results.append((x.numpy(), step(x, source).numpy()))
    for result in results[1:]:
        np.testing.assert_allclose(result, results[0], rtol=1e-6)


def test_parameters_of_compiled_functions_and_of_batches() -> None:
    draw = mm.compile(lambda lam, shape: mm.random.Generator(3).poisson(lam, (2, 2)) * shape)
    np.testing.assert_array_equal(
        draw(25.0, 2).numpy(), 2 * mm.random.Generator(3).poisson(25.0, (2, 2)).numpy()
    )
    source = mm.random.Generator(9)
    rows = mm.vmap(lambda a, b: source.gamma(a, b, size=500))(
        mm.asarray([0.5, 50.0]), mm.asarray([[2.0], [3.0]])
    ).numpy()
    np.testing.assert_allclose(rows.mean(1), [1.0, 150.0], rtol=0.2)
    assert len(np.unique(mm.vmap(lambda i: source.poisson(1e6, 3) + i)(mm.zeros(20)).numpy())) > 50


# Vectors, orders, choices -------------------------------------------------------------------------


def test_items_of_several_colors() -> None:
    colors = np.asarray([16, 8, 4, 30])
    drawn = mm.random.Generator(1).multivariate_hypergeometric(colors, 25, 20_000).numpy()
    expected = stats.multivariate_hypergeom(colors, 25)
    assert (drawn.sum(1) == 25).all()
    assert ((drawn >= 0) & (drawn <= colors)).all()
    np.testing.assert_allclose(drawn.mean(0), expected.mean(), atol=0.06)
    np.testing.assert_allclose(np.cov(drawn.T), expected.cov(), atol=0.15)


def test_spawned_generators() -> None:
    """They are the same for a seed, and all draw different numbers."""
    drawn = []
    for _ in range(2):
        source = mm.random.Generator(6)
        children = [*source.spawn(3), *source.spawn(2), *source.spawn(1)[0].spawn(1), source]
        drawn.append([child.uniform(size=4).tolist() for child in children])
    assert drawn[0] == drawn[1]
    assert len({number for numbers in drawn[0] for number in numbers}) == 4 * len(drawn[0])
    with pytest.raises(ValueError, match="n_children"):
        source.spawn(-1)


def test_bytes() -> None:
    drawn = mm.random.Generator(1).bytes(5000)
    assert isinstance(drawn, bytes)
    assert np.unique(np.frombuffer(drawn, np.uint8)).size == 256


def test_normal_vectors() -> None:
    mean, cov = [1.0, -2.0, 0.5], np.asarray([[2.0, 0.8, 0.0], [0.8, 1.0, 0.3], [0.0, 0.3, 0.5]])
    source = mm.random.Generator(1)
    x = source.multivariate_normal(mean, cov, (100, 300)).numpy().reshape(-1, 3)
    np.testing.assert_allclose(x.mean(0), mean, atol=0.03)
    np.testing.assert_allclose(np.cov(x.T), cov, atol=0.05)
    white = (x - mean) @ np.linalg.inv(np.linalg.cholesky(cov)).T
    assert stats.kstest(white.reshape(-1), stats.norm.cdf).pvalue > 1e-3
    flat = source.multivariate_normal([0.0, 0.0], [[1.0, 1.0], [1.0, 1.0]], 50).numpy()
    np.testing.assert_allclose(flat[:, 0], flat[:, 1], atol=1e-6)  # a singular matrix
    assert source.multivariate_normal([0.0], [[1.0]]).shape == (1,)
    with pytest.raises(ShapeError, match=r"cov has shape \(d, d\)"):
        source.multivariate_normal([0.0, 0.0], [1.0, 1.0])


def test_dirichlet_and_multinomial_vectors() -> None:
    source, alpha = mm.random.Generator(1), np.asarray([0.5, 2.0, 4.5])
    x = source.dirichlet(alpha, COUNT).numpy()
    np.testing.assert_allclose(x.sum(1), 1, rtol=1e-5)
    expected = stats.dirichlet(alpha)
    np.testing.assert_allclose(x.mean(0), expected.mean(), atol=0.01)
    np.testing.assert_allclose(x.var(0), expected.var(), rtol=0.05)
    counts = source.multinomial([10, 1000], [0.1, 0.6, 0.3], (5000, 2)).numpy()
    np.testing.assert_array_equal(counts.sum(-1), [[10, 1000]] * 5000)
    for n, actual in zip((10, 1000), np.moveaxis(counts, 1, 0), strict=True):
        known = stats.multinomial(n, [0.1, 0.6, 0.3])
        np.testing.assert_allclose(actual.mean(0), known.mean(), rtol=0.03)
        np.testing.assert_allclose(np.cov(actual.T), known.cov(), atol=0.06 * n)
    with pytest.raises(OptionError, match="sum of pvals"):
        source.multinomial(5, [0.9, 0.8, 0.1])


def test_permuted_orders_each_row_on_its_own() -> None:
    source, x = mm.random.Generator(1), np.arange(2000).reshape(100, 20)
    rows = source.permuted(x, axis=1).numpy()
    np.testing.assert_array_equal(np.sort(rows, 1), x)
    assert len({tuple(row % 20) for row in rows}) == 100
    columns = source.permuted(mm.asarray(x), axis=0).numpy()
    np.testing.assert_array_equal(np.sort(columns, 0), x)
    everything = source.permuted(x).numpy()
    assert everything.shape == x.shape
    np.testing.assert_array_equal(np.sort(everything.reshape(-1)), x.reshape(-1))
    assert (everything // 20 != x // 20).mean() > 0.9


@pytest.mark.parametrize("count", [0, 1, 60, 63, 500, 1000])
def test_choice_without_replacement(count: int) -> None:
    source = mm.random.Generator(1)
    result = source.choice(1000, count, replace=False).tolist()
    assert len(set(result)) == count
    assert all(0 <= x < 1000 for x in result)
    entries = source.choice(np.arange(1000) * 7, (count, 1), replace=False)
    assert entries.shape == (count, 1)
    assert len(set((entries // 7).numpy().reshape(-1).tolist())) == count


def test_each_entry_is_as_likely_to_be_among_a_few() -> None:
    source = mm.random.Generator(1)
    drawn = mm.stack([source.choice(48, 3, replace=False) for _ in range(800)]).numpy()
    assert stats.chisquare(np.bincount(drawn.reshape(-1), minlength=48)).pvalue > 1e-3
    assert (np.diff(drawn) > 0).mean() == pytest.approx(0.5, abs=0.06)  # in random order


@pytest.mark.parametrize("replace", [True, False])
def test_choice_by_whole_probabilities(replace: bool) -> None:
    assert mm.random.default_rng(1).choice([5, 6, 7], 1, replace, p=[0, 1, 0]).tolist() == [6]
    assert mm.random.default_rng(1).choice(2, 1, replace, p=[True, False]).tolist() == [0]


def test_choice_by_probabilities() -> None:
    source, p = mm.random.Generator(1), np.asarray([0.1, 0.0, 0.6, 0.3])
    for given in (p, p.tolist(), mm.asarray(p)):
        result = np.bincount(source.choice(4, COUNT, p=given).numpy(), minlength=4)
        assert result[1] == 0
        assert stats.chisquare(result[p > 0], p[p > 0] * COUNT).pvalue > 1e-3
    first = [source.choice(4, 3, replace=False, p=p).tolist() for _ in range(400)]
    assert all(sorted(x) == [0, 2, 3] for x in first)
    assert sum(x[0] == 2 for x in first) / 400 == pytest.approx(0.6, abs=0.1)
    rows = source.choice(np.arange(6.0).reshape(2, 3), 4, axis=1).numpy()
    np.testing.assert_array_equal(rows[1] - rows[0], 3)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda r: r.poisson(-1.0), ValueError, "poisson: lam must be from 0 to .* was given -1"),
        (lambda r: r.poisson(float("nan")), ValueError, "poisson: lam must be"),
        (lambda r: r.poisson([1.0, -2.0]).numpy(), ValueError, "poisson: lam.*was given -2"),
        (lambda r: r.binomial(5, 1.5), ValueError, "binomial: p must be from 0 to 1"),
        (lambda r: r.binomial([5, -1], 0.5).numpy(), ValueError, "binomial: n must be"),
        (lambda r: r.gamma(-0.5), ValueError, "gamma: shape must be"),
        (lambda r: r.gamma(mm.asarray([1.0, np.nan])).numpy(), ValueError, "gamma: shape must"),
        (lambda r: r.exponential(-1.0), ValueError, "exponential: scale must be at least 0"),
        (lambda r: r.beta(0, 1), ValueError, "beta: a must be greater than 0, was given 0"),
        (lambda r: r.geometric(0), ValueError, "geometric: p must be greater than 0 and at most 1"),
        (lambda r: r.uniform(2, 1), ValueError, "uniform: needs low ≤ high, was given 2 and 1"),
        (lambda r: r.normal(0, -1), ValueError, "normal: std must be at least 0, was given -1"),
        (lambda r: r.exponential((2, 3)), ShapeError, r"scale must be a number.*size=\(2, 3\)"),
        (lambda r: r.exponential(1j * mm.ones(2)), DTypeError, "scale must be real"),
        (lambda r: r.gamma(2.0, dtype="int64"), DTypeError, "draws floating point numbers"),
        (lambda r: r.integers([1.5]), ShapeError, "bounds are integers"),
        (lambda r: r.choice(3, p=[0.5, 0.2, 0.1]), ValueError, "their sum is 1.*the sum 0.8"),
        (lambda r: r.choice(3, p=[1.5, -0.5, 0.0]), ValueError, "the smallest is -0.5"),
        (lambda r: r.choice(3, p=[0.5, 0.5]), ShapeError, "one probability for each of 3"),
        (lambda r: r.choice(0, 2), ValueError, "nothing to choose from"),
        (lambda r: r.choice(mm.ones((2, 2)), axis=2), IndexError, "random.choice"),
        (lambda r: r.shuffle((1, 2)), TypeError, r"x = mm.random.permutation\(x\)"),
    ],
)  # fmt: skip
def test_mistakes(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(mm.random)


def test_gradients_by_parameters() -> None:
    """Numbers that are scaled and shifted have gradients; the shape of gamma numbers has none."""
    source = mm.random.Generator(1)
    scale = mm.asarray([1.0, 2.0])
    total = mm.sum(source.laplace(3.0, scale) + source.gamma(2.0, scale))
    drawn = float(total) - 6
    np.testing.assert_allclose(float(mm.sum(mm.grad(total, scale) * scale)), drawn, rtol=1e-5)
    with pytest.raises(MagmathError, match="no gradient with respect to the shape"):
        mm.grad(mm.sum(source.beta(scale, 2.0)), scale)
