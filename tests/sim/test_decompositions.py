"""Every decomposition of an operation computes the same, for all layouts of its operands."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

import magmath as mm
import operation_bodies as bodies
from engines import current, engine_of
from magmath.graph import apply
from magmath.graph.operation import no_decomposition
from magmath.ops import OPERATIONS, cumulative
from magmath.ops.cumulative import CUMULATIVE_PROD, CUMULATIVE_SUM
from operation_table import ROWS, cases

phases = [Phase.explicit, Phase.reuse, Phase.generate]
some = settings(max_examples=5, suppress_health_check=list(HealthCheck), phases=phases)
# These have ways for large operands or few shapes only: tried where those are.
SELDOM = ("contract", "correlation", "fft_c2r", "fft_r2c", "reshape", "sort", "argsort")
SEVERAL = sorted(
    name
    for name in ROWS
    if OPERATIONS[name].decompositions is not no_decomposition and name not in SELDOM
)


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize(("kind", "workers"), [("shared", 2), ("messages", 3)])
@given(data=st.data())
@some
def test_every_way_computes_the_same(
    name: str, kind: str, workers: int, data: st.DataObject
) -> None:
    """The place pass takes the cheapest; here each of them is taken."""
    engine, case = engine_of(kind, workers), data.draw(cases(ROWS[name]))
    at = [data.draw(bodies.placements(x, engine, partial=False)) for x in case.operands]
    operands = [bodies.leaf(engine, x, layout) for x, layout in zip(case.operands, at, strict=True)]
    node = apply(OPERATIONS[name], *operands, **case.attributes)
    ways = node.operation.decompositions(node, at)
    assume(ways)
    for value in bodies.values(engine, *ways):
        bodies.check_close(value, bodies.reference(name, case), (name, case, at))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64", "uint32"])
def test_running_results_continue_from_block_to_block(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cumulative, "BLOCK_BYTES", 40)
    values = np.random.default_rng(0).integers(0, 3, (7, 60)).astype(dtype)
    with current("shared", 2):
        for axis in (0, 1):
            x = mm.asarray(values, layout=mm.Layout.split(axis))
            (way,) = CUMULATIVE_SUM.decompositions(
                apply(CUMULATIVE_SUM, x.node, axis=axis), [x.layout]
            )
            np.testing.assert_array_equal(np.asarray(mm.Array(way)), values.cumsum(axis))


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64"])
def test_running_results_leave_the_range_of_their_type_and_return(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A product underflows before the parts of other workers, whose own products overflow; a sum is
    far below the range before they add to it."""
    monkeypatch.setattr(cumulative, "BLOCK_BYTES", 40)
    limits = np.finfo(dtype)
    factors, summands = np.ones((2, 90), dtype)
    digits = int(limits.maxexp * 0.302) + 1
    factors[:20] = 10 ** -(digits / 10)
    factors[35:90] = 10 ** (digits / 10)
    summands[:4], summands[40:48] = -0.4 * limits.max, 0.4 * limits.max
    with current("shared", 3):
        for operation, values, wide in (
            (CUMULATIVE_PROD, factors, np.cumprod),
            (CUMULATIVE_SUM, summands, np.cumsum),
        ):
            x = mm.asarray(values, layout=mm.Layout.split(0))
            (way,) = operation.decompositions(apply(operation, x.node, axis=0), [x.layout])
            with np.errstate(all="ignore"):
                expected = wide(values, dtype=np.result_type(dtype, np.float64)).astype(dtype)
            np.testing.assert_allclose(np.asarray(mm.Array(way)), expected, rtol=1e-2)


@pytest.mark.parametrize(("shape", "axis"), [((0, 60), 1), ((60, 0), 0), ((2, 60, 0), 1)])
def test_running_results_and_searches_along_a_split_axis_of_no_elements(
    shape: tuple[int, ...], axis: int
) -> None:
    values = np.zeros(shape, np.float32)
    with current("shared", 2):
        x = mm.asarray(values, layout=mm.Layout.split(axis))
        for name in ("cumulative_sum", "cumulative_prod", "argmax"):
            attributes = {"axis": axis} | ({"keepdims": False} if name == "argmax" else {})
            node = apply(OPERATIONS[name], x.node, **attributes)
            (way,) = node.operation.decompositions(node, [x.layout])
            result = np.asarray(mm.Array(way))
            np.testing.assert_array_equal(result, OPERATIONS[name].reference(values, **attributes))
