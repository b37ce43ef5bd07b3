"""A module name has one meaning: modules of one name, in several packages, are layers of one idea."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src/magmath"
FUNCTION_AND_LAYER = "functions of `nn.functional`, and the layers that call them"
OPERATION_AND_FUNCTION = "operations, and the functions that users call"
OPERATION_AND_KERNEL = "operations, and their kernels"
SAME_IDEA = {
    "attention": FUNCTION_AND_LAYER,
    "conv": OPERATION_AND_KERNEL,
    "convolution": f"{OPERATION_AND_KERNEL}; {FUNCTION_AND_LAYER}",
    "creation": OPERATION_AND_FUNCTION,
    "cumulative": OPERATION_AND_FUNCTION,
    "csv": "the file format, and the function that reads it",
    "distributed_svd": OPERATION_AND_KERNEL,
    "dropout": FUNCTION_AND_LAYER,
    "elementwise": OPERATION_AND_FUNCTION,
    "fft": f"{OPERATION_AND_KERNEL}; {OPERATION_AND_FUNCTION}",
    "gemm": OPERATION_AND_KERNEL,
    "indexing": "`x[index]`, its operations, and the functions that select like it",
    "lapack": OPERATION_AND_KERNEL,
    "linalg": f"{OPERATION_AND_KERNEL}; {OPERATION_AND_FUNCTION}",
    "manipulation": OPERATION_AND_FUNCTION,
    "normalization": f"operations; {FUNCTION_AND_LAYER}",
    "order_statistics": OPERATION_AND_FUNCTION,
    "pooling": f"operations; {FUNCTION_AND_LAYER}",
    "random": "the functions that users call, and their kernels",
    "realignment": OPERATION_AND_KERNEL,
    "reductions": OPERATION_AND_FUNCTION,
    "request_reply": OPERATION_AND_KERNEL,
    "resampling": FUNCTION_AND_LAYER,
    "samplers": OPERATION_AND_KERNEL,
    "selection": OPERATION_AND_KERNEL,
    "sort": OPERATION_AND_KERNEL,
    "sorting": OPERATION_AND_FUNCTION,
    "variables": "variables, and the kinds of variables of networks",
}
"""Names that several modules and packages may have, with the reason."""
TOP = ("bench", "cli", "reproduce")
"""Packages whose modules have the name of what they measure, run or reproduce."""


def _places() -> dict[str, set[str]]:
    """Return the folders that have a module or a package of each name; the module of a package's
    own name, as `graph.graph`, belongs to the package."""
    places: dict[str, set[str]] = defaultdict(set)
    for path in ROOT.rglob("*.py"):
        module = path.parent if path.name == "__init__.py" else path
        relative = module.relative_to(ROOT)
        is_main_module = relative.stem == relative.parent.name
        if relative.parts and relative.parts[0] not in TOP and not is_main_module:
            places[relative.stem].add(str(relative.parent))
    return places


def test_no_two_modules_have_one_name_for_different_ideas() -> None:
    repeated = {name: sorted(folders) for name, folders in _places().items() if len(folders) > 1}
    assert {n: f for n, f in repeated.items() if n not in SAME_IDEA} == {}
    assert SAME_IDEA.keys() <= repeated.keys(), "no longer repeated"
