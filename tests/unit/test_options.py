"""The environment variables: one table in the source, the same one in the documents."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from magmath.core.options import COMPILE_AFTER, VARIABLES
from magmath.errors import OptionError

ROOT = Path(__file__).parents[2]
OF_PROCESSES = re.compile(r"MAGMATH_(BENCH_\w+|CACHE_FALLBACK|POOL_SECRET)")
"""Variables by which processes pass data to each other; users do not set them."""


def test_the_table_in_the_documents_is_that_of_the_source() -> None:
    page = (ROOT / "docs/running.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(MAGMATH_\w+)` \| (?:none|`(.*?)`) \| (.*) \|$", page, re.MULTILINE)
    assert rows == [(v.name, v.default, v.meaning) for v in VARIABLES]


def test_no_other_module_names_a_variable_in_code() -> None:
    known = {v.name for v in VARIABLES}
    for path in (ROOT / "src/magmath").rglob("*.py"):
        if path.name == "options.py":
            continue
        named = set(re.findall(r"[\"'](MAGMATH_[A-Z_]+)[\"']", path.read_text(encoding="utf-8")))
        assert not named & known, path
        assert all(OF_PROCESSES.fullmatch(name) for name in named), path


def test_a_variable_is_read_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable.name, raising=False)
        assert variable.read() == variable.default
        monkeypatch.setenv(variable.name, "")
        assert variable.read() == variable.default
        monkeypatch.setenv(variable.name, "other")
        assert variable.read() == "other"
        assert str(variable) == variable.name


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "0.3 s"])
def test_numbers_that_are_none_are_errors(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMPILE_AFTER.name, text)
    with pytest.raises(OptionError, match=f"MAGMATH_COMPILE_AFTER: must be.* is '{text}'"):
        COMPILE_AFTER.read_number()
    for number in ("0", "0.5", "inf"):
        monkeypatch.setenv(COMPILE_AFTER.name, number)
        assert COMPILE_AFTER.read_number() == float(number)
