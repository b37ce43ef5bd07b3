"""`vectorize`: NumPy's class that applies a Python function of numbers to each element of arrays.

A function that only computes (`elementwise_code`) is traced, and the workers apply it to all
elements, as by `vmap`, in the types of the Python numbers that NumPy passes. Any other one is
called for each element, on a copy in this process, and so is one that gives infinity or nan, as
division by zero does, where Python raises an error or gives a complex number, or integers of more
than 64 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, final

import numpy as np

from magmath.api import reductions
from magmath.api.creation import asarray
from magmath.api.elementwise import equal, isfinite, less, logical_and
from magmath.arrays.array import Array, as_array
from magmath.arrays.lazy_array import evaluate
from magmath.arrays.tree import Tree, flatten, unflatten
from magmath.core.dtypes import as_dtype, complex128, float64, int64, is_same_kind, uint64
from magmath.core.shapes import broadcast
from magmath.errors import TracingError
from magmath.graph import Node, topological
from magmath.ops import elementwise as e
from magmath.ops.elementwise import astype
from magmath.ops.manipulation import reshape
from magmath.ops.sums import broadcast_to
from magmath.transform.elementwise_code import is_elementwise
from magmath.transform.vmap import vmap

_WIDEST = {"int": int64, "uint": int64, "float": float64, "complex": complex128}
"""The element types of Python's numbers, by the kinds of those that become them."""
_MAY_OVERFLOW = {"add", "subtract", "multiply", "square", "power", "negative", "abs"}
"""The operations whose result may have more bits than their integer operands."""
_LARGE = 2.0**62


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
        if not is_elementwise(self.pyfunc):
            return None
        arrays = [as_array("vectorize", x).node for x in args]
        if not _are_of_python_numbers(arrays):
            return None
        shape = broadcast("vectorize", *[x.shape for x in arrays])
        flat = [Array(_flat(x, shape)) for x in arrays]
        wide = [Array(astype(x.node, _WIDEST[x.dtype.kind])) for x in flat]
        results = self._mapped(wide)
        if results is None:
            return None
        leaves, tree, estimates = results
        types = self._types
        if types is None:  # as in NumPy, those that the elements themselves give
            is_wide = all(x.dtype is y.dtype for x, y in zip(wide, flat, strict=True))
            of_elements = results if is_wide else self._mapped(flat)
            if of_elements is None:
                return None
            types = [x.dtype for x in of_elements[0]]
        if len(types) != len(leaves):
            return None
        numbers = [Array(reshape(x.node, shape)) for x in leaves]
        typed = [Array(astype(x.node, dtype)) for x, dtype in zip(numbers, types, strict=True)]
        return unflatten(tree, typed) if _can_hold(typed, numbers, estimates) else None

    def _mapped(self, flat: Sequence[Array]) -> tuple[list[Any], Tree, list[Array]] | None:
        """Return the results of the function for all elements, their nesting, and the
        `_overflow_estimates`; None if it does not give an array for each."""
        if not flat[0].size:
            return None
        try:
            results, estimates = vmap(self._with_estimates)(*flat)
            leaves, tree = flatten(results)
        except Exception:  # of any class: the function is not made for arrays
            return None
        are_arrays = all(isinstance(x, Array) and x.shape == flat[0].shape for x in leaves)
        return (leaves, tree, estimates) if are_arrays else None

    def _with_estimates(self, *numbers: Array) -> tuple[Any, list[Array]]:
        result = self.pyfunc(*numbers)
        return result, _overflow_estimates(flatten(result)[0])

    def _call_with_numbers(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        values = [x.numpy() if isinstance(x, Array) else x for x in args]
        keywords = {name: x.numpy() if isinstance(x, Array) else x for name, x in kwargs.items()}
        results = self._of_numpy(*values, **keywords)
        return tuple(map(asarray, results)) if isinstance(results, tuple) else asarray(results)


def _overflow_estimates(results: Sequence[Any]) -> list[Array]:
    """Return the integers of which the results are computed, as far as they may have more than 64
    bits, as float64."""
    estimates = []
    nodes = [x.node for x in results if isinstance(x, Array)]
    for node in topological(nodes, pending=True):
        if node.dtype.is_integer and node.name in _MAY_OVERFLOW:
            operands = [astype(x, float64) for x in node.inputs]
            estimates.append(Array(e.call(node.name, *operands)))
    return estimates


def _can_hold(typed: Sequence[Array], numbers: Sequence[Array], estimates: Sequence[Array]) -> bool:
    """Compute results converted to their types; return True if they are finite, and have the
    numbers, but for their rounding, and if the `estimates` have 64 bits. True while a function is
    traced, when they have no values."""
    conditions = [less(abs(x), _LARGE) for x in estimates]
    for result, x in zip(typed, numbers, strict=True):
        widest = _WIDEST.get(result.dtype.kind)
        if widest is None or not is_same_kind(x.dtype, widest):
            return False
        is_integer = widest is int64
        conditions.append(equal(result.astype(x.dtype), x) if is_integer else isfinite(result))
    are_held = reduce(logical_and, map(reductions.all, conditions))
    try:
        evaluate(are_held, *typed, wait=True)
    except TracingError:
        return True
    return bool(are_held)


def _are_of_python_numbers(arrays: Sequence[Node]) -> bool:
    """Return True if an element type has the Python numbers that the elements become."""
    types = [x.dtype for x in arrays]  # numbers of uint64 may be larger, or become negative
    return uint64 not in types and _WIDEST.keys() >= {dtype.kind for dtype in types}


def _flat(x: Node, shape: tuple[int, ...]) -> Node:
    """Return the elements of an array, broadcast to a shape, in one dimension."""
    wide = broadcast_to(x, shape)
    return reshape(wide, (wide.size,))
