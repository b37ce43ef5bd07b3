"""Programs for NumPy with only the import changed, on worker processes."""

from __future__ import annotations

import magmath as mm
from numpy_programs import PROGRAMS, compare, result


def test_programs_give_numpys_numbers_with_two_worker_processes() -> None:
    mm.set_default_dtype("float64")
    try:
        with mm.init(workers=2, threads=1):
            for program in PROGRAMS:
                compare(result(program, "magmath"), result(program, "numpy"), 1e-8)
    finally:
        mm.set_default_dtype("float32")
