"""Recipes of slices, whose first positions are numbers that each record stores."""

from __future__ import annotations

from magmath.graph import Operation
from magmath.graph.provenance.recipe import NumberStep, Recipe, RecipeStep


def with_starts(recipe: Recipe, operation: Operation, first: int, count: int) -> Recipe | None:
    """Return a recipe with one operation of this kind, whose inputs from the `first` one on become
    the numbers of the recipe; None if these are not all its numbers, `count` of them."""
    steps = [x for x in recipe.steps if isinstance(x, RecipeStep) and x.operation is operation]
    if len(steps) != 1:
        return None
    starts = steps[0].sources[first:]
    numbers = [i for i, x in enumerate(recipe.steps) if isinstance(x, NumberStep)]
    if len(starts) != count or sorted(starts) != numbers:
        return None
    return recipe.with_numbers(starts)
