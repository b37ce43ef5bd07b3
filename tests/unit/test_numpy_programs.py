"""Programs as people write them for NumPy: with only the import changed they give NumPy's numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import magmath as mm
from engines import current
from numpy_programs import PROGRAMS, compare, result

KINDS = [("inline", 1), ("shared", 2), ("messages", 3)]


@pytest.fixture
def doubles() -> Iterator[None]:
    """Python floats as NumPy takes them."""
    mm.set_default_dtype("float64")
    yield
    mm.set_default_dtype("float32")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[0])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_program_gives_numpys_numbers(program: Path, kind: tuple[str, int], doubles: None) -> None:
    with current(*kind):
        compare(result(program, "magmath"), result(program, "numpy"), 1e-8)
