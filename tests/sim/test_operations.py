"""Every operation of the table: against NumPy, in any layout on any workers, and its gradients."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import operation_bodies as bodies
from engines import engine_of
from magmath.ops import OPERATIONS, leaves, movement
from operation_table import FOLDED, ROWS, cases

TABLE = {**ROWS, **FOLDED}
SMOOTH = {name: row for name, row in ROWS.items() if row.slopes}
POOLS = [(kind, workers) for workers in (2, 3, 4, 7) for kind in ("shared", "messages")]
POOLS += [("shared", 1)]

# A failure may cost a pool, so failing examples of those tests are shown as they were found.
found = [Phase.explicit, Phase.reuse, Phase.generate]
few = settings(max_examples=4, suppress_health_check=list(HealthCheck), phases=found)
some = settings(max_examples=10, suppress_health_check=list(HealthCheck))


def test_every_operation_has_a_row() -> None:
    tried_elsewhere = {*leaves.OPERATIONS, *movement.OPERATIONS}
    assert set(TABLE) == set(OPERATIONS) - tried_elsewhere


@pytest.mark.parametrize(
    ("name", "dtype"), [(name, dtype) for name, row in TABLE.items() for dtype in row.dtypes]
)
@given(data=st.data())
@few
def test_one_worker_agrees_with_numpy(name: str, dtype: str, data: st.DataObject) -> None:
    case = data.draw(cases(TABLE[name], dtype))
    result = bodies.computed(engine_of("inline"), name, case)
    bodies.check_close(result, bodies.reference(name, case), (name, case))


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize(("kind", "workers"), POOLS, ids=[f"{n}-{kind}" for kind, n in POOLS])
@given(data=st.data())
@few
def test_any_layout_gives_the_same(name: str, kind: str, workers: int, data: st.DataObject) -> None:
    case = data.draw(cases(TABLE[name]))
    bodies.check_any_layout(engine_of(kind, workers), name, case, data)


@pytest.mark.parametrize("name", SMOOTH)
@given(data=st.data())
@some
def test_gradient_agrees_with_differences(name: str, data: st.DataObject) -> None:
    case = data.draw(cases(SMOOTH[name], smooth=True))
    bodies.check_first_gradient(engine_of("inline"), name, case, SMOOTH[name].slopes)


@pytest.mark.parametrize("name", SMOOTH)
@given(data=st.data())
@some
def test_second_gradient_agrees_with_differences(name: str, data: st.DataObject) -> None:
    case = data.draw(cases(SMOOTH[name], smooth=True))
    bodies.check_second_gradient(engine_of("inline"), name, case, SMOOTH[name].slopes)


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("kind", ["shared", "messages"])
@given(data=st.data())
@few
def test_gradient_in_any_layout_gives_the_same(name: str, kind: str, data: st.DataObject) -> None:
    case = data.draw(cases(SMOOTH[name], smooth=True))
    one = engine_of("inline")
    slopes = SMOOTH[name].slopes
    bodies.check_gradient_any_layout(engine_of(kind, 3), one, name, case, slopes, data)
