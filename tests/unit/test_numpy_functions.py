"""NumPy's functions and methods, written as NumPy's users do, against NumPy: in random layouts on
one worker and on several."""

from __future__ import annotations

import inspect
import io
import random
import re
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import magmath as mm
import numpy_calls
from engines import current
from magmath.arrays.protocols.methods import METHODS
from magmath.core.missing_numpy_names import EXCLUDED, EXCLUDED_OBJECTS
from magmath.errors import DataError, DTypeError, MagmathError

KINDS = [("inline", 1), ("shared", 2), ("messages", 3)]
FAMILIES = ("ELEMENTWISE", "REDUCTIONS", "SHAPES", "INDEXING", "PRODUCTS", "CREATION", "METHODS")
CALLS = [
    call.strip()
    for family in FAMILIES
    for line in getattr(numpy_calls, family).strip().splitlines()
    for call in line.split(";")
    if hasattr(np, "row_stack") or "row_stack" not in call  # NumPy 2.5 has removed it
]
PROGRAMS = numpy_calls.IN_PLACE.strip().splitlines()


@pytest.fixture(autouse=True)
def _doubles() -> Iterator[None]:
    """Python floats as NumPy takes them."""
    mm.set_default_dtype("float64")
    yield
    mm.set_default_dtype("float32")


def placed(value: Any, choice: random.Random) -> mm.Array:
    """An array in a random layout."""
    rules = [mm.Layout.replicated()]
    for d in range(value.ndim):
        rules += [mm.Layout.split(d), mm.Layout.cyclic(d, block=choice.randint(1, 3))]
    return mm.asarray(value, layout=choice.choice(rules))


def same(ours: Any, theirs: Any, call: str) -> None:
    """Assert equal types, shapes and values, part by part."""
    if isinstance(theirs, (tuple, list)) and not isinstance(theirs, str):
        assert len(ours) == len(theirs), call
        for mine, other in zip(ours, theirs, strict=True):
            same(mine, other, call)
        return
    if isinstance(ours, mm.Array):
        assert ours.dtype.name == np.asarray(theirs).dtype.name, call
        assert ours.shape == np.shape(theirs), call
        ours = ours.numpy()
    if isinstance(theirs, (np.ndarray, np.generic, float, complex)):
        limit = 1e-6 if np.asarray(theirs).dtype == np.float32 else 1e-9
        np.testing.assert_allclose(ours, theirs, rtol=limit, atol=limit * 1e-2, err_msg=call)
    else:
        assert ours == theirs, call


def evaluated(call: str, lib: Any, arrays: dict[str, Any]) -> Any:
    """What a call gives; of several statements, what the last one does."""
    names = {"np": lib, **arrays}
    *statements, last = call.split(";")
    with np.errstate(all="ignore"):
        for statement in statements:
            exec(statement.strip(), names)
        return eval(last.strip(), names)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[0])
@pytest.mark.parametrize("call", [*CALLS, *PROGRAMS])
def test_call_gives_what_numpy_gives(call: str, kind: tuple[str, int]) -> None:
    values = numpy_calls.samples()
    theirs = evaluated(call, np, values)
    choice, words = random.Random(call), set(re.findall(r"\w+", call))
    with current(*kind):
        arrays = {n: placed(v, choice) for n, v in values.items() if n in words}
        same(evaluated(call, mm, arrays), theirs, call)


def public_functions() -> set[str]:
    """NumPy's public names of functions."""
    return {
        name
        for name in np.__all__
        if callable(getattr(np, name)) and not isinstance(getattr(np, name), type)
    }


def test_nearly_all_of_numpys_functions_are_there() -> None:
    functions = public_functions()
    there = {name for name in functions if hasattr(mm, name)}
    assert functions - there == set(EXCLUDED)
    names = {name for name in dir(np) if not name.startswith("_")}
    sized = {"core", "complex256", "float128"}  # of some platforms; core is not public
    assert names - {*dir(mm)} - sized == {*EXCLUDED, *EXCLUDED_OBJECTS}
    generators = {"bit_generator"}
    drawn = {name for name in dir(np.random.Generator) if not name.startswith("_")}
    assert drawn - {*dir(mm.random.Generator)} == generators
    assert len(there) >= 0.9 * len(functions)
    assert set(np.linalg.__all__) <= {*dir(mm.linalg)}
    assert set(np.fft.__all__) <= {*dir(mm.fft)}


def test_each_function_is_called_above() -> None:
    """Names with a call in the table, or a test of their own."""
    text = "\n".join([*CALLS, *PROGRAMS])
    own = set(EXCLUDED) | OWN_TESTS
    missing = {
        name
        for name in public_functions() - own
        if f"np.{name}(" not in text and f"np.{name}." not in text
    }
    assert not missing


OWN_TESTS = {
    *(
        "fromfile",
        "loadtxt",
        "genfromtxt",
        "savetxt",
        "load",
        "save",
        "savez",
        "savez_compressed",
    ),  # files
    *("astype", "from_dlpack", "isdtype"),  # the standard's
    *(
        "unique_all",
        "unique_counts",
        "unique_inverse",
        "unique_values",
    ),  # unit/test_sorting_and_sets.py
    *("get_printoptions", "set_printoptions", "printoptions", "geterr", "seterr"),  # NumPy's own
    *("format_float_positional", "format_float_scientific"),
    "may_share_memory",  # unit/test_numpy_behaviours.py
    "shares_memory",  # unit/arrays/test_views.py
}


UNSUPPORTED = {
    "order", "subok", "like", "device", "casting", "signature", "extobj", "overwrite_input",
    "copy", "kind", "allow_pickle", "fix_imports", "encoding", "max_header_size", "mmap_mode",
    "einsum_call", "ndmax",
}  # fmt: skip
"""Parameters that mean nothing for arrays without an order in memory."""


def parameters(function: Any) -> list[inspect.Parameter]:
    """Those that can be given by name."""
    result = inspect.signature(function).parameters.values()
    return [p for p in result if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]


def test_parameters_have_numpys_names() -> None:
    names = [*sorted(public_functions() - set(EXCLUDED))]
    for module in ("linalg", "fft"):
        shared = set(getattr(np, module).__all__) & set(dir(getattr(mm, module)))
        names += [f"{module}.{name}" for name in sorted(shared)]
    wrong = []
    for name in names:
        ours, theirs = attrgetter(name)(mm), attrgetter(name)(np)
        if isinstance(theirs, np.ufunc) or not inspect.isfunction(ours):
            continue
        try:
            asked = parameters(theirs)
        except ValueError:  # NumPy's signature is not known
            continue
        taken = inspect.signature(ours).parameters.values()
        if any(p.kind is p.VAR_KEYWORD for p in taken) or hasattr(ours, "nin"):
            continue
        known = {p.name for p in taken if p.kind is not p.POSITIONAL_ONLY} | UNSUPPORTED
        known |= {"out"} if name.startswith("fft.") or hasattr(ours, "__wrapped__") else set()
        wrong += [f"{name}({p.name}=)" for p in asked if p.name not in known]
    assert wrong == ["load(file=)"]


def test_methods_have_numpys_parameters() -> None:
    """As far as NumPy tells them: it has signatures of methods since 2.4."""
    for name in {*dir(np.ndarray)} & {*METHODS, "compress", "flatten", "partition", "sort"}:
        try:
            asked = parameters(getattr(np.ndarray, name))
        except ValueError:
            continue
        taken = inspect.signature(getattr(mm.Array, name)).parameters.values()
        known = {p.name for p in taken if p.kind is not p.POSITIONAL_ONLY}
        assert {p.name for p in asked} <= known | UNSUPPORTED, name


OWN_PARAMETERS = {
    "integers": {"dtype"},  # by name: the third one may be a shape or a size
    "multivariate_hypergeometric": {"method"},
    "multivariate_normal": {"method", "check_valid", "tol"},
    "normal": {"loc", "scale"},
}
"""Parameters of NumPy's generators that ours lack, or have at another position."""


def test_generators_have_numpys_parameters() -> None:
    ours, theirs = mm.random.default_rng(0), np.random.default_rng(0)
    methods = [name for name in dir(theirs) if not name.startswith("_") and hasattr(ours, name)]
    for name in methods:
        if not callable(getattr(theirs, name)):
            continue
        asked = parameters(getattr(theirs, name))
        taken = parameters(getattr(ours, name))
        positions = [p.name for p in taken if p.kind is p.POSITIONAL_OR_KEYWORD]
        named = {p.name for p in taken}
        for position, p in enumerate(asked):
            if p.name in OWN_PARAMETERS.get(name, set()):
                continue
            assert p.name in named, (name, p.name)
            if p.kind is p.POSITIONAL_OR_KEYWORD and p.name in positions:
                assert positions.index(p.name) == position, (name, p.name)
            elif p.kind is p.POSITIONAL_OR_KEYWORD:  # our own name is at the position
                assert position < len(positions) or name == "integers", (name, p.name)


@pytest.mark.parametrize("name", ["random", "standard_normal", "standard_exponential"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_random_numbers_are_stored_in_an_array_of_their_size(name: str, dtype: str) -> None:
    out = mm.zeros((3, 4), dtype=dtype)
    assert getattr(mm.random.default_rng(1), name)(dtype=dtype, out=out) is out
    expected = getattr(mm.random.default_rng(1), name)((3, 4), dtype)
    np.testing.assert_array_equal(out.numpy(), expected.numpy())
    assert mm.random.default_rng(1).standard_gamma(2.0, (3, 4), dtype, out) is out
    assert mm.random.default_rng(1).permuted(out, axis=1, out=out) is out


def test_loaded_arrays_are_used_as_those_of_numpy(tmp_path: Path) -> None:
    """With the names, and as a context, for files and for file objects."""

    def rows(np: Any, file: Any) -> list[Any]:
        with np.load(file) as arrays:
            return [arrays.files, *[arrays[name].tolist() for name in arrays.files]]

    np.savez(tmp_path / "a.npz", x=[1, 2], y=3.5)
    assert rows(mm, tmp_path / "a.npz") == rows(np, tmp_path / "a.npz") == [["x", "y"], [1, 2], 3.5]
    with (tmp_path / "a.npz").open("rb") as file:
        arrays = mm.load(file)
        assert arrays.files == ["x", "y"]
        arrays.close()
        assert arrays["y"] == 3.5


def test_compressed_files(tmp_path: Path) -> None:
    values = np.zeros((50, 40))
    with current("shared", 2):
        x, file = mm.asarray(values), io.BytesIO()
        mm.savez_compressed(tmp_path / "a", x, half=mm.ones(3, dtype=mm.float16))
        mm.savez_compressed(file, x + 1)
        file.seek(0)
        np.testing.assert_array_equal(np.load(file)["arr_0"], values + 1)
        assert (tmp_path / "a.npz").stat().st_size < values.nbytes / 4
        loaded = mm.load(tmp_path / "a.npz")
        assert loaded["half"].dtype == mm.float16
        np.testing.assert_array_equal(loaded["arr_0"], values)
        with pytest.raises(DTypeError, match="no bfloat16"):
            mm.savez_compressed(file, mm.ones(3, dtype=mm.bfloat16))
        with pytest.raises(DataError, match="savez_compressed: arr_0 would be in the file twice"):
            mm.savez_compressed(file, x, arr_0=x)


def test_text_files(tmp_path: Path) -> None:
    values = np.arange(12.0).reshape(4, 3) / 7
    with current("shared", 2):
        x = mm.asarray(values)
        mm.savetxt(tmp_path / "a.txt", x, delimiter=",", header="three columns")
        np.testing.assert_array_equal(np.loadtxt(tmp_path / "a.txt", delimiter=","), values)
        assert mm.array_equal(mm.loadtxt(tmp_path / "a.txt", delimiter=","), x)
        assert mm.array_equal(mm.genfromtxt(tmp_path / "a.txt", delimiter=","), x)
        x.tofile(tmp_path / "a.bin")
        assert mm.array_equal(mm.fromfile(tmp_path / "a.bin"), x.ravel())


def test_einsum_with_lists_of_numbers() -> None:
    random = np.random.default_rng(0)
    x, y = random.normal(size=(3, 4)), random.normal(size=(4, 5))
    a, b = mm.asarray(x), mm.asarray(y)
    for lists in [
        lambda x, y: (x, [0, 1], y, [1, 2]), lambda x, y: (x, [0, 1], y, [1, 2], [2, 0]),
        lambda x, y: (x, [1, 0]), lambda x, y: (x, [30, 2]), lambda x, y: (x @ y, [..., 1], [1, ...]),
        lambda x, y: (x, (0, 1), []),
    ]:  # fmt: skip
        result = mm.einsum(*lists(a, b))
        np.testing.assert_allclose(result.numpy(), np.einsum(*lists(x, y)), rtol=1e-12)
        np.testing.assert_allclose(np.einsum(*lists(a, b)), result.numpy())
    for wrong in ((a,), (a, [0, 1], b), (a, [0, -1]), (a, [0, 99]), (a, ["i", "j"])):
        with pytest.raises(
            TypeError, match="einsum: the subscripts come first, .* or as a list of"
        ):
            mm.einsum(*wrong)


COPIES = """
np.pad(v, 0); np.pad(z, 0); np.nan_to_num(i); np.nan_to_num(b); np.repeat(v, 1); np.tile(v, 1); np.clip(v, None, 9)
np.concatenate([v]); np.delete(v, []); np.append(v, []); np.sum(v, axis=()); np.max(m, axis=()); np.resize(v, v.shape); np.trim_zeros(k)
np.compress([True] * 11, v); np.extract(v == v, v); np.where(v == v, v, v); np.triu(m, -9); np.tril(m, 9); np.block(v); np.block([v]); np.hstack([v])
np.round(i); np.floor(i); np.trunc(i); np.around(i, 2); np.real_if_close(v); np.positive(v); np.multiply(v, 1); v + 0; +v; abs(p); v.copy(); v.round(2)
v.flatten(); v.astype(float); v.take(np.arange(11)); v[np.arange(11)]; v[v == v]; np.intersect1d(i, i); np.lexsort((v,)); np.sort(v); np.unique(i)
np.diff(v); np.fft.fftshift(z); np.array(v); np.copy(v); np.maximum(v, v); np.ldexp(v, 0); np.interp(v, w, v); np.convolve(v, [1]); np.dot(v, 1)
"""


@pytest.mark.filterwarnings("ignore")  # of NumPy, of names and flags that it gives up
def test_results_are_views_only_where_those_of_numpy_are() -> None:
    """A write to a result changes an operand if, and only if, it does so in NumPy."""
    copies = [call.strip() for line in COPIES.strip().splitlines() for call in line.split(";")]
    checked = 0
    for call in [*CALLS, *copies]:
        if any(part in call for part in VIEWS_OF_NUMPY_ALONE):
            continue
        theirs = numpy_calls.samples()
        ours = {k: mm.asarray(v) if isinstance(v, np.ndarray) else v for k, v in theirs.items()}
        with np.errstate(all="ignore"):
            try:
                wanted = eval(call, {"np": np, **theirs})
            except ValueError:
                continue  # a bug of NumPy
            actual = eval(call, {"np": mm, **ours})
        several = isinstance(wanted, (tuple, list))
        for a, b in zip(actual, wanted, strict=True) if several else [(actual, wanted)]:
            if (
                isinstance(a, mm.Array)
                and isinstance(b, np.ndarray)
                and a.size
                and b.flags.writeable
            ):
                assert _is_view_of(a, ours) == _is_view_of(b, theirs), call
                checked += 1
    assert checked > 500


VIEWS_OF_NUMPY_ALONE = ("asfortranarray", "(n=0", "n=0)", "matrix_power(q, 1)", ".conj()")
"""Orders in memory, and results that NumPy's users do not expect to be views."""


def _is_view_of(result: Any, operands: dict[str, Any]) -> bool:
    """Return True if a write to a result changes an operand."""
    if isinstance(result, np.ndarray):
        return any(
            np.shares_memory(result, x) for x in operands.values() if isinstance(x, np.ndarray)
        )
    arrays = {k: x for k, x in operands.items() if isinstance(x, mm.Array)}
    before = {k: x.numpy() for k, x in arrays.items()}
    try:
        result[...] = ~result.numpy() if result.dtype == mm.bool else result.numpy() + 1
    except MagmathError:
        return True  # a view that can only be read
    return any(not np.array_equal(x.numpy(), before[k], equal_nan=True) for k, x in arrays.items())


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_eigenvalues_of_matrices_that_are_not_finite(dtype: str, value: float) -> None:
    """LAPACK may end the process instead."""
    matrix = np.array([[1.0, value], [2.0, 3.0]], dtype)
    with pytest.raises(np.linalg.LinAlgError):
        mm.evaluate(mm.linalg.eigvals(mm.asarray(matrix)))
    with pytest.raises(np.linalg.LinAlgError):
        mm.evaluate(*mm.linalg.eig(mm.asarray(matrix)))
