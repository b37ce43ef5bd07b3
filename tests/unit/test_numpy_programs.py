"""Programs as people write them for NumPy: with only the import changed they give NumPy's numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath.bench import numpy_programs
from magmath.bench.numpy_programs.agreement import difference
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


@pytest.mark.parametrize("kind", KINDS[:2], ids=lambda kind: kind[0])
@pytest.mark.parametrize("name", numpy_programs.NAMES)
def test_benchmarked_program_gives_numpys_numbers(
    name: str, kind: tuple[str, int], doubles: None
) -> None:
    program = numpy_programs.load(name)
    data = program.data(program.SIZES[0] // 2)
    with current(*kind):
        ours = program.main(mm, *map(mm.asarray, data))
        assert difference(ours, program.main(np, *data)) < 1e-8


def test_other_variants_of_a_program_give_the_same_numbers() -> None:
    for name in numpy_programs.NAMES:
        program = numpy_programs.load(name)
        variant = numpy_programs.variant(program, "with_scipy")
        if variant is not None:
            data = program.data(program.SIZES[0])
            actual = difference(variant(np, *data), program.main(np, *data))
            assert actual < 1e-6, (name, actual)


def test_difference_of_results() -> None:
    pair = np.array([3, 4])
    whole = (np.array([1.0, 2.0, np.inf]), [pair])
    assert difference(whole, whole) == 0
    assert difference((np.array([1.0, 2.5, np.inf]), pair), whole) == 0.25
    assert difference((np.array([1.0, 2.0, 5.0]), pair), whole) == np.inf
    assert difference((np.array([1.0, np.nan, np.inf]), pair), whole) == np.inf
    assert difference((np.array([1.0]), pair), whole) == np.inf
