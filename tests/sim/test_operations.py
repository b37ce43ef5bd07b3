"""Every operation of the table: against NumPy, in any layout on any workers, and its gradients."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import operation_bodies as bodies
from engines import engine_of
from magmath.core.dtypes import DTYPES
from magmath.core.index_set import IndexSet
from magmath.errors import DTypeError
from magmath.graph import KernelCall, apply
from magmath.layout import Layout
from magmath.memory.torch_dtypes import to_torch
from magmath.ops import OPERATIONS, block_reduction, creation, leaves, redistribute
from operation_table import FOLDED, REAL, ROWS, UNSIGNED, Case, cases, matrices

TABLE = {**ROWS, **FOLDED}
VECTORS = ("eigh", "eig", "eigvals", "svd")  # not unique: tried in test_linalg.py
SMOOTH = {name: row for name, row in ROWS.items() if row.slopes}
POOLS = [(kind, workers) for workers in (2, 3, 4, 7) for kind in ("shared", "messages")]
POOLS += [("shared", 1)]

# A failure may cost a pool, so failing examples of those tests are shown as they were found.
phases = [Phase.explicit, Phase.reuse, Phase.generate]
many = settings(max_examples=20, suppress_health_check=list(HealthCheck), phases=phases)
few = settings(max_examples=3, suppress_health_check=list(HealthCheck), phases=phases)
some = settings(max_examples=6, suppress_health_check=list(HealthCheck))


def test_every_operation_has_a_row() -> None:
    tried_elsewhere = {
        *leaves.OPERATIONS,
        *redistribute.OPERATIONS,
        *block_reduction.OPERATIONS,
        *VECTORS,
    }
    tried_elsewhere |= {
        "branch",
        "branch_result",
        "checkpoint",
        "custom_call",
        "custom_result",
        "gradient",
        "independent",
        "summands",
        "sum_parts",
        "sum_signs",
    }
    missing = set(OPERATIONS) - tried_elsewhere - set(TABLE)
    assert not missing, f"tests/operation_table has no row for {', '.join(sorted(missing))}"
    assert set(TABLE) == set(OPERATIONS) - tried_elsewhere


@pytest.mark.parametrize(
    ("name", "dtype"), [(name, dtype) for name, row in TABLE.items() for dtype in row.dtypes]
)
@given(data=st.data())
@few
def test_one_worker_agrees_with_numpy(name: str, dtype: str, data: st.DataObject) -> None:
    case = data.draw(cases(TABLE[name], dtype))
    expected = bodies.reference(name, case)
    for kind in ("inline", "planned"):
        result = bodies.computed(engine_of(kind), name, case)
        bodies.check_close(result, expected, (name, kind, case))


# Types are checked where the user's line is; what only passes make is not checked again.
UNCHECKED = {*creation.OPERATIONS, "scatter_add", "scatter_along", "gemm", "lu_solve", "parity"}


@pytest.mark.parametrize("name", sorted(set(TABLE) - UNCHECKED))
@given(data=st.data())
@settings(max_examples=1)
def test_other_types_are_refused(name: str, data: st.DataObject) -> None:
    for dtype in sorted(set(DTYPES) - set(TABLE[name].dtypes)):
        case = data.draw(cases(TABLE[name], dtype))
        with pytest.raises(DTypeError, match=f"{dtype}"):
            apply(OPERATIONS[name], *bodies.operand_nodes(case), **case.attributes)


def test_complex_numbers_are_not_cast_to_real_ones() -> None:
    (x,) = bodies.operand_nodes(Case((torch.ones(2, dtype=torch.complex64),), {}))
    for name in REAL:
        with pytest.raises(DTypeError, match=f"complex64.*{name}.*convert"):
            apply(OPERATIONS["astype"], x, dtype=DTYPES[name])


SPECIAL = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0, -2.5, 3.0]
UNUSUAL = ("where", "astype", "zeta")  # the order of zeta is finite
POINTWISE = [n for n in ROWS if OPERATIONS[n].is_elementwise and n not in UNUSUAL]


@pytest.mark.parametrize("name", [n for n in POINTWISE if "float64" in ROWS[n].dtypes])
@given(data=st.data())
@settings(max_examples=1)
def test_special_numbers_are_treated_as_numpy_does(name: str, data: st.DataObject) -> None:
    count = len(data.draw(cases(ROWS[name])).operands)
    grids = np.meshgrid(*[SPECIAL] * count, indexing="ij")
    case = Case(tuple(torch.from_numpy(grid.ravel()) for grid in grids), {})
    result = bodies.computed(engine_of("inline"), name, case)
    bodies.check_close(result, bodies.reference(name, case), name)
    bodies.check_signs(result, bodies.reference(name, case), name)


HALVES_AND_DOUBLES = [
    (n, d)
    for n in POINTWISE
    for d in ("float64", "bfloat16")
    if {"float64", d} <= {*ROWS[n].dtypes}
]


@pytest.mark.parametrize(("name", "dtype"), HALVES_AND_DOUBLES)
@given(data=st.data())
@settings(max_examples=1)
def test_kernels_compute_in_place(name: str, dtype: str, data: st.DataObject) -> None:
    """A result may be stored in the memory of an operand that nothing else needs."""
    count = len(data.draw(cases(ROWS[name])).operands)
    grids = np.meshgrid(*[SPECIAL] * count, indexing="ij")
    operands = [torch.from_numpy(grid.ravel()).to(to_torch(DTYPES[dtype])) for grid in grids]
    node = apply(OPERATIONS[name], *bodies.operand_nodes(Case(tuple(operands), {})))
    whole = (IndexSet.range(0, operands[0].numel()),)

    def computed(out: torch.Tensor, inputs: list[torch.Tensor]) -> torch.Tensor:
        tiles, shapes = [whole] * count, [node.shape] * count
        context: Any = SimpleNamespace(deterministic=False)
        call = KernelCall(out, inputs, {}, whole, tiles, node.shape, shapes, context)
        with np.errstate(all="ignore"):
            OPERATIONS[name].kernel(call)()
        return bodies.bits(out)

    expected = computed(torch.empty(node.shape, dtype=to_torch(node.dtype)), operands)
    for i in range(count):
        inputs = [x.clone() for x in operands]
        if inputs[i].dtype == to_torch(node.dtype):
            assert torch.equal(computed(inputs[i], inputs), expected), i


@pytest.mark.parametrize("name", TABLE)
@given(data=st.data())
@few
def test_deterministic_pools_agree_bit_for_bit(name: str, data: st.DataObject) -> None:
    case = data.draw(cases(TABLE[name]))
    other = data.draw(st.sampled_from([2, 4]))
    engines = [engine_of("exact", workers) for workers in (1, 3, other)]
    bodies.check_exact(engines, name, case, data)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", ["multiply", "divide", "square", "sign"])
@pytest.mark.parametrize("shape", [(5, 13), (301, 401)])
def test_deterministic_complex_arithmetic_agrees_bit_for_bit(
    shape: tuple[int, int], name: str, dtype: str
) -> None:
    """torch rounds numbers of whole vectors differently from those at the end of an array."""
    random = np.random.default_rng(0)
    parts = [random.standard_normal((2, *shape)) for _ in range(2)]
    operands = [torch.from_numpy((re + 1j * im).astype(dtype)) for re, im in parts]
    count = 1 if name in ("square", "sign") else 2
    case = Case(tuple(operands[:count]), {})
    expected = bodies.computed(engine_of("exact", 1), name, case)
    for workers in (2, 3):
        engine = engine_of("exact", workers)
        for axis in (0, 1):
            at = [Layout.even(shape, engine.pool.mesh, axis)] * count
            result = bodies.computed(engine, name, case, at)
            assert torch.equal(bodies.bits(result), bodies.bits(expected)), (workers, axis)


@given(data=st.data())
@settings(many, max_examples=8)
def test_deterministic_sums_agree_bit_for_bit(data: st.DataObject) -> None:
    """Long sums of numbers that do not add exactly, where another order would show."""
    m, k, n = (data.draw(st.integers(1, 100)) for _ in range(3))
    k *= data.draw(st.sampled_from([1, 1, 10]))
    random = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    a, b = (torch.from_numpy(random.standard_normal(s)).float() for s in ((m, k), (k, n)))
    axes = data.draw(st.sampled_from([(0,), (1,), (0, 1)]))
    engines = [engine_of("exact", workers) for workers in (1, 2, 3, 4, 8)]
    product = {"subscripts": "ab,bc->ac", "dtype": DTYPES["float32"]}
    for name, case in (
        ("contract", Case((a, b), product)),
        ("sum", Case((a,), {"axis": axes, "keepdims": False})),
        ("cumulative_sum", Case((b,), {"axis": axes[0]})),
        ("contract", Case((a.mT, a), product)),
        ("exp", Case((b,), {})),
        ("random_normal", Case((torch.tensor(m), torch.tensor(k)),
                               {"shape": (m, n), "dtype": DTYPES["float32"]})),
    ):  # fmt: skip
        bodies.check_exact(engines, name, case, data)


@pytest.mark.parametrize(("kind", "workers"), POOLS, ids=[f"{n}-{kind}" for kind, n in POOLS])
@given(data=st.data())
@many
def test_redistribution_keeps_the_values(kind: str, workers: int, data: st.DataObject) -> None:
    case = data.draw(cases(TABLE["permute_dims"]))
    bodies.check_redistribution(engine_of(kind, workers), case.operands[0], data)


@pytest.mark.parametrize("name", TABLE)
@given(data=st.data())
@settings(few, max_examples=8)
def test_any_layout_gives_the_same(name: str, data: st.DataObject) -> None:
    kind, workers = data.draw(st.sampled_from(POOLS))
    case = data.draw(cases(TABLE[name]))
    bodies.check_any_layout(engine_of(kind, workers), name, case, data)


@pytest.mark.parametrize("name", ["sum", "cumulative_sum", "scatter_add"])
@pytest.mark.parametrize("dtype", ["float32", "complex64", "complex128"])
@pytest.mark.parametrize(("kind", "workers"), POOLS, ids=[f"{n}-{kind}" for kind, n in POOLS])
@given(data=st.data())
@few
def test_sums_of_infinite_numbers_in_any_layout(
    name: str, dtype: str, kind: str, workers: int, data: st.DataObject
) -> None:
    """An infinite real part leaves the imaginary one as it is."""
    engine, random = engine_of(kind, workers), np.random.default_rng(data.draw(st.integers(0, 999)))
    x = np.empty(data.draw(st.tuples(*[st.integers(1, 6)] * 2)), "complex128")
    for part in (x.real, x.imag):
        part[...] = random.choice([np.inf, -np.inf, *[0.0, 1.0, -2.5] * 3], x.shape)
    numbers = torch.from_numpy(x if dtype.startswith("complex") else x.real.copy())
    operands, axis = [numbers.to(to_torch(DTYPES[dtype]))], data.draw(st.sampled_from([0, 1]))
    if name == "scatter_add":
        operands.append(torch.from_numpy(random.integers(0, 4, x.shape[axis])))
    attributes: dict[str, dict[str, Any]] = {
        "sum": {"axis": (axis,), "keepdims": False},
        "cumulative_sum": {"axis": axis},
        "scatter_add": {"axes": (axis,), "at": axis, "extents": (4,)},
    }
    case = Case(tuple(operands), attributes[name])
    placed = data.draw(bodies.all_placements(case.operands, engine, partial=False))
    result = bodies.computed(engine, name, case, placed)
    bodies.check_close(result, bodies.reference(name, case), (name, case, placed))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_signs_of_infinite_complex_numbers_are_those_of_numpy(dtype: str) -> None:
    parts = np.meshgrid(SPECIAL, SPECIAL)
    x = np.empty(parts[0].shape, dtype)
    x.real, x.imag = parts
    case = Case((torch.from_numpy(x),), {})
    result = bodies.computed(engine_of("inline"), "sign", case)
    bodies.check_close(result, bodies.reference("sign", case), "sign")


PICKING = ("take", "put", "scatter_add", "take_along", "scatter_along")


@pytest.mark.parametrize("name", PICKING)
@pytest.mark.parametrize("dtype", UNSIGNED)
@given(data=st.data())
@some
def test_types_that_torch_hardly_knows_are_picked_in_parts(
    dtype: str, name: str, data: st.DataObject
) -> None:
    """A worker that lacks what an index names must leave it out, by operations that torch has."""
    case = data.draw(cases(TABLE[name], dtype))
    bodies.check_any_layout(engine_of("shared", 2), name, case, data)


@pytest.mark.parametrize("name", SMOOTH)
@given(data=st.data())
@some
def test_gradient_agrees_with_differences(name: str, data: st.DataObject) -> None:
    case = data.draw(cases(SMOOTH[name], smooth=True))
    bodies.check_first_gradient(engine_of("inline"), name, case, SMOOTH[name].slopes)


@pytest.mark.parametrize("name", ROWS)
@given(data=st.data())
@few
def test_integers_have_no_gradient(name: str, data: st.DataObject) -> None:
    case = data.draw(cases(ROWS[name]))
    bodies.check_integers_have_no_gradient(engine_of("inline"), name, case)


@pytest.mark.parametrize("name", SMOOTH)
@given(data=st.data())
@some
def test_second_gradient_agrees_with_differences(name: str, data: st.DataObject) -> None:
    case = data.draw(cases(SMOOTH[name], smooth=True))
    bodies.check_second_gradient(engine_of("inline"), name, case, SMOOTH[name].slopes)


# Their gradients multiply an infinite cotangent by a 0, or by a rounding error of one.
MULTIPLYING = {
    *matrices.ROWS,
    "remainder",
    "fmod",
    "max",
    "min",
    "correlation",
    "correlation_kernel",
}


@pytest.mark.parametrize("name", sorted(set(SMOOTH) - MULTIPLYING))
@given(data=st.data())
@few
def test_cotangents_reach_no_other_elements(name: str, data: st.DataObject) -> None:
    case = data.draw(cases(SMOOTH[name], smooth=True))
    bodies.check_reach_of_cotangents(engine_of("inline"), name, case, SMOOTH[name].slopes)


@pytest.mark.parametrize("name", SMOOTH)
@given(data=st.data())
@few
def test_gradient_in_any_layout_gives_the_same(name: str, data: st.DataObject) -> None:
    case = data.draw(cases(SMOOTH[name], smooth=True))
    one = engine_of("inline")
    slopes = SMOOTH[name].slopes
    for kind in ("shared", "messages"):
        bodies.check_gradient_any_layout(engine_of(kind, 3), one, name, case, slopes, data)
