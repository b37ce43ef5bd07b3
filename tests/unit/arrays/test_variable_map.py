"""Values by variable: another variable with the identity of a deleted one has none."""

from __future__ import annotations

import pickle

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
