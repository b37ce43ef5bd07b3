"""JSON text: any reader of JSON reads it, whatever the numbers are."""

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from magmath.core.json_text import json_text

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda parts: st.lists(parts) | st.tuples(parts) | st.dictionaries(st.text(), parts),
)


def _refuse(name):
    raise AssertionError(f"{name} is no JSON")


def _expected(data):
    match data:
        case float():
            return data if math.isfinite(data) else None
        case dict():
            return {key: _expected(value) for key, value in data.items()}
        case list() | tuple():
            return [_expected(value) for value in data]
    return data


@given(plain)
def test_data_are_read_back_except_for_infinities_and_nan(data):
    assert json.loads(json_text(data), parse_constant=_refuse) == _expected(data)
