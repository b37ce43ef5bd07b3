"""Meshes, layouts and redistribution plans: which worker stores which elements, and how they
move."""

from __future__ import annotations

from magmath.layout.layout import Layout, Rule
from magmath.layout.mesh import Mesh
from magmath.layout.moves import Move
from magmath.layout.redistribution import Redistribution, Stage, plan_redistribution
from magmath.layout.split import CutPieces, Cyclic, HaloRanges, Split, even_cuts

__all__ = [
    "CutPieces",
    "Cyclic",
    "HaloRanges",
    "Layout",
    "Mesh",
    "Move",
    "Redistribution",
    "Rule",
    "Split",
    "Stage",
    "even_cuts",
    "plan_redistribution",
]
