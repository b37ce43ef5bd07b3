"""Mesh, layout, redistribution plans and their cost: who holds what, and how it moves."""

from __future__ import annotations

from magmath.layout.layout import Layout
from magmath.layout.mesh import Mesh
from magmath.layout.moves import Move
from magmath.layout.redistribution import Redistribution, Stage, plan
from magmath.layout.rule import Rule
from magmath.layout.split import Blocks, Cyclic, HaloRanges, Split, even_cuts

__all__ = [
    "Blocks",
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
    "plan",
]
