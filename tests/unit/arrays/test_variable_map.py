"""Values by variable: another variable with the identity of a deleted one has none."""

from __future__ import annotations

import gc
import pickle
import weakref

import pytest

import magmath as mm
from engines import current
from magmath.arrays.variables.variable_map import VariableMap


def test_values_end_with_their_variable() -> None:
    with current("inline"):
        values: VariableMap[int] = VariableMap()
        kept = mm.variable("kept", 1.0)
        values[kept] = -1
        identities = set()
        for number in range(20):
            v = mm.variable("v", 0.0)
            identities.add(id(v))
            assert v not in values
            with pytest.raises(KeyError):
                values[v]
            values[v] = number
            assert values[v] == values.find(v) == number
            del v
        assert len(identities) < 20  # some variables had the identity of a deleted one
        assert values[kept] == -1
        assert kept not in pickle.loads(pickle.dumps(values))


def test_a_value_is_deleted_with_its_variable() -> None:
    class Value:
        pass

    with current("inline"):
        values: VariableMap[Value] = VariableMap()
        v, first, second = mm.variable("v", 0.0), Value(), Value()
        references = weakref.ref(first), weakref.ref(second)
        values[v] = first
        values[v] = second
        del first, second
        assert [x() is None for x in references] == [True, False]
        del v
        assert references[1]() is None


def test_values_end_with_the_map() -> None:
    class Value:
        pass

    with current("inline"):
        v, value, values = mm.variable("v", 0.0), Value(), VariableMap[Value]()
        reference = weakref.ref(value)
        values[v] = value
        del value
        gc.disable()  # the last reference ends the map, not the collector of cycles
        try:
            del values
            assert reference() is None
        finally:
            gc.enable()
        del v
