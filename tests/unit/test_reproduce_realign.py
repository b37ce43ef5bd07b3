"""The experiment with the forms of a bias, in a small form."""

from __future__ import annotations

import pytest

from magmath.reproduce import Options, shm_realign
from magmath.reproduce.section import Finding, Plot, Table
from magmath.reproduce.shm_realign import AUTO, FORMS, FORWARD, GRADIENTS, ONE

SHAPES = ((6, 5, 4), (3, 8, 2))


def test_every_form_has_its_time_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The temporaries follow from the shapes: the outputs of the layer below, with a column of ones
    in the last three forms, and a copy of weights and bias where they are two parameters."""
    for name, value in (("QUICK", SHAPES), ("QUICK_ROUNDS", 1), ("ROUND_SECONDS", 1e-3)):
        monkeypatch.setattr(shm_realign, name, value)
    section = shm_realign.run(Options(quick=True))
    forward, gradients, memory = section.of_kind(Table)
    assert forward.columns == memory.columns == ("shape", *FORMS.values(), ONE)
    assert gradients.columns[-1] == AUTO
    for table, forms in ((forward, FORWARD), (gradients, GRADIENTS)):
        assert [row[0] for row in table.rows] == ["6×5×4", "3×8×2"]
        assert all(len(row) == 1 + len(forms) for row in table.rows)
        assert all(cell > 0 for row in table.rows for cell in row[1:])
        assert "Processor time" in table.note
    assert "Processor time" not in memory.note, "these are bytes"
    for (rows, inputs, units), row in zip(SHAPES, memory.rows, strict=True):
        alone, wide = 4 * rows * inputs, 4 * rows * (inputs + 1)
        folded = wide + 4 * (inputs + 1) * units
        for result, least in zip(row[1:], (alone, alone, folded, folded, wide), strict=True):
            assert least <= 1024 * result < least + 256, "up to the alignment of two arrays"
    (plot,) = section.of_kind(Plot)
    assert plot.figure.axes[0].get_xlabel() == "time ÷ time with the fused epilogue"
    assert len(section.of_kind(Finding)) == 3


@pytest.mark.parametrize("realigned", [0.5, 2.0])
def test_findings_follow_the_numbers(realigned: float) -> None:
    seconds = dict.fromkeys((*FORWARD, AUTO), 1.0) | {"realigned": realigned}
    memory = dict.fromkeys(FORWARD, 100.0)
    given = dict.fromkeys(SHAPES, seconds)
    faster, best, copy = shm_realign._findings(given, given, dict.fromkeys(SHAPES, memory))
    assert faster.agrees is best.agrees is (realigned < 1.0)
    assert bool(faster.reason) is (realigned > 1.0)
    assert f"takes {realigned:.2f} × the time" in faster.ours, "equal ratios are one number"
    assert copy.agrees
