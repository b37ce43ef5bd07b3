"""`vectorize`: NumPy's class that applies a Python function of numbers to each element of arrays.

A function that only computes is traced, and the workers apply it to all elements, as by `vmap`, in
the types of the Python numbers that NumPy passes. Any other one is called for each element, on a
copy in this process: one that may distinguish an array from a number, such as by its type or by
catching errors, and one that gives infinity or nan for finite elements, as division by zero does,
where Python raises an error or gives a complex number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, final

import numpy as np

from magmath.api.creation import asarray
from magmath.api.elementwise import isfinite, logical_and, logical_not
from magmath.api.reductions import any
from magmath.arrays.array import Array, as_array
from magmath.arrays.lazy_array import evaluate
from magmath.arrays.tree import Tree, flatten, unflatten
from magmath.core.dtypes import as_dtype, complex128, float64, int64, uint64
from magmath.core.shapes import broadcast
from magmath.errors import TracingError
from magmath.graph import Node
from magmath.ops.elementwise import astype
from magmath.ops.manipulation import reshape
from magmath.ops.sums import broadcast_to
from magmath.transform.object_walk import complete_walk
from magmath.transform.vmap import vmap

_WIDEST = {"int": int64, "uint": int64, "float": float64, "complex": complex128}
"""The element types of Python's numbers, by the kinds of those that become them."""


@final
class vectorize:
    """A function of arrays, made of a function of numbers, with the parameters of NumPy's class.

    With `signature`, `excluded` or keywords, the function is called by NumPy, on copies.
    """

    def __init__(
        self,
        pyfunc: Callable[..., Any],
        otypes: Any = None,
        doc: str | None = None,
        excluded: Iterable[Any] | None = None,
        cache: bool = False,
        signature: str | None = None,
    ) -> None:
        self.pyfunc, self.signature = pyfunc, signature
        self._types = None if otypes is None else [as_dtype(x) for x in otypes]
        self._excluded = set(excluded or ())
        names = None if self._types is None else [np.dtype(dtype.name) for dtype in self._types]
        self._of_numpy = np.vectorize(pyfunc, names, doc, self._excluded, cache, signature)
        self.__doc__ = doc or getattr(pyfunc, "__doc__", None)
        self.__name__ = getattr(pyfunc, "__name__", "vectorize")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the results of the function for all elements of the arguments, which broadcast."""
        plain = args and not (kwargs or self._excluded or self.signature)
        traced = self._try_trace(args) if plain else None
        return self._call_with_numbers(args, kwargs) if traced is None else traced

    def _try_trace(self, args: tuple[Any, ...]) -> Any:
        """Return the results computed by the workers, None if the function has to be called with
        numbers."""
        walk = complete_walk((self.pyfunc,))
        if walk.found_reads.inspects or walk.generators or walk.iterators:
            return None
        arrays = [as_array("vectorize", x).node for x in args]
        if uint64 in [x.dtype for x in arrays]:  # Python's numbers may be larger, or negative
            return None
        shape = broadcast("vectorize", *[x.shape for x in arrays])
        flat = [Array(_flat(x, shape)) for x in arrays]
        wide = [_widened(x) for x in flat]
        results = self._mapped(wide)
        if results is None:
            return None
        leaves, tree = results
        types = self._types
        if types is None:  # as in NumPy, those that the elements themselves give
            is_same = all(x is y for x, y in zip(wide, flat, strict=True))
            typed = results if is_same else self._mapped(flat)
            if typed is None:
                return None
            types = [x.dtype for x in typed[0]]
        if len(types) != len(leaves) or _has_new_infinity(wide, leaves):
            return None
        shaped = [
            Array(astype(reshape(x.node, shape), dtype))
            for x, dtype in zip(leaves, types, strict=True)
        ]
        return unflatten(tree, shaped)

    def _mapped(self, flat: Sequence[Array]) -> tuple[list[Any], Tree] | None:
        """Return the results of the function for all elements, and their nesting, None if it does
        not give an array for each."""
        if not flat[0].size:
            return None
        try:
            leaves, tree = flatten(vmap(self.pyfunc)(*flat))
        except Exception:  # of any class: the function is not made for arrays
            return None
        are_arrays = all(isinstance(x, Array) and x.shape == flat[0].shape for x in leaves)
        return (leaves, tree) if are_arrays else None

    def _call_with_numbers(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        values = [x.numpy() if isinstance(x, Array) else x for x in args]
        keywords = {name: x.numpy() if isinstance(x, Array) else x for name, x in kwargs.items()}
        results = self._of_numpy(*values, **keywords)
        return tuple(map(asarray, results)) if isinstance(results, tuple) else asarray(results)


def _has_new_infinity(arguments: Sequence[Array], results: Sequence[Array]) -> bool:
    """Return True if a result is infinite or nan for finite arguments; False if these have no
    values yet, in a function that is traced."""
    inexact = [x for x in results if x.dtype.kind in ("float", "complex")]
    if not inexact:
        return False
    was_finite = reduce(logical_and, map(isfinite, arguments))
    is_finite = reduce(logical_and, map(isfinite, inexact))
    has_any = any(logical_and(was_finite, logical_not(is_finite)))
    try:
        evaluate(has_any, *results)
    except TracingError:
        return False
    return bool(has_any)


def _flat(x: Node, shape: tuple[int, ...]) -> Node:
    """Return the elements of an array, broadcast to a shape, in one dimension."""
    wide = broadcast_to(x, shape)
    return reshape(wide, (wide.size,))


def _widened(x: Array) -> Array:
    """Return an array in the type of the Python numbers that its elements become."""
    dtype = _WIDEST.get(x.dtype.kind, x.dtype)
    return x if x.dtype is dtype else Array(astype(x.node, dtype))
