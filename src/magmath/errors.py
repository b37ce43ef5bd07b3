"""The exception classes of magmath.

Each class also derives from the built-in exception that a Python programmer would expect, so
`except ValueError` works without knowing this module. Messages say which operation failed, what it
required, what it was given, and what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = [
    "AxisError",
    "DTypeError",
    "DataError",
    "DeviceError",
    "ExperimentError",
    "GradientError",
    "IndexingError",
    "LayoutError",
    "LinAlgError",
    "MagmathError",
    "MatrixShapeError",
    "MemoryLimitError",
    "MissingDataError",
    "MissingPackageError",
    "MissingWeightsError",
    "NonFiniteLoss",
    "OptionError",
    "PositionError",
    "ProtocolError",
    "RangeError",
    "ReadOnlyError",
    "ScalarError",
    "ShapeError",
    "StateError",
    "TracingError",
    "UnsupportedError",
    "WeightsError",
    "WorkerError",
    "WorkerLost",
]


def __dir__() -> list[str]:
    return __all__


class MagmathError(Exception):
    """The base of all errors of magmath, which are of its derived classes."""


class ShapeError(MagmathError, ValueError):
    """Shapes do not fit the operation."""


class DTypeError(MagmathError, TypeError):
    """A data type is unknown, or the operation is not defined for it."""


class RangeError(MagmathError, OverflowError, ValueError):
    """A number does not fit the data type that it is to have, or the range of a parameter."""


class PositionError(MagmathError, ValueError, IndexError):
    """A position that is an argument of a function is outside of the array."""


class IndexingError(MagmathError, IndexError):
    """An index is outside of the array, or is none: a float, or too many of them."""


class ScalarError(MagmathError, TypeError, ValueError):
    """An array of several elements, or of none, where one number is needed."""


class LayoutError(MagmathError, ValueError):
    """A layout or mesh is contradictory, or does not fit the array or the pool."""


class ReadOnlyError(MagmathError, ValueError):
    """An update in place of a view that is only read, such as the result of `broadcast_to`."""


class DeviceError(MagmathError, RuntimeError):
    """A device or kind of memory that this machine does not have."""


class MemoryLimitError(MagmathError, MemoryError):
    """An allocation would exceed the memory limit; names the largest holders.

    is_uniform  True if every worker refuses the allocation
    """

    is_uniform = False


class WorkerError(MagmathError, RuntimeError):
    """A worker failed with an exception that has no class of its own here."""


class WorkerLost(MagmathError, RuntimeError):
    """A worker died or stopped answering, and its pool is closed; or the pool of an array has
    ended."""


class StateError(MagmathError, RuntimeError):
    """The object is in a state in which the call is impossible: it has not been run or built, is
    frozen or closed."""


class TracingError(MagmathError, RuntimeError):
    """A function that is traced does what its program could not repeat: it needs a value, seeds the
    generator, updates an array from outside, or binds an attribute or a variable to another."""


class GradientError(MagmathError, RuntimeError):
    """There is no gradient: it is not defined, or a value that it needs does not exist any more."""


class UnsupportedError(MagmathError, NotImplementedError):
    """A model or module that is converted has an operation that the other format or library does
    not have."""


class DataError(MagmathError, ValueError):
    """A data set or a file is malformed, or samples and targets do not fit each other or the
    network, such as labels out of range."""


class OptionError(MagmathError, ValueError):
    """An argument of a function or an option of the command line is out of range, contradicts
    another, or is a function whose results the caller cannot use."""


class ExperimentError(MagmathError, RuntimeError):
    """A benchmark or a reproduced experiment has failed, or its results differ."""


class MissingDataError(MagmathError, FileNotFoundError):
    """A data set is not on this machine; the message lists the searched locations and the way to
    get it."""


class MissingPackageError(MagmathError, ImportError):
    """An optional package is needed and not installed; the message says how to install it."""


class WeightsError(MagmathError, ValueError):
    """A weights or checkpoint file is malformed, or does not fit the network."""


class MissingWeightsError(WeightsError, MissingDataError):
    """There is no weights or checkpoint file, or no folder for one, at a path."""


class NonFiniteLoss(MagmathError, ArithmeticError):
    """The loss became infinite or NaN during training."""


class ProtocolError(MagmathError, RuntimeError):
    """A message between controller and workers is malformed."""


if TYPE_CHECKING:

    class LinAlgError(MagmathError, ValueError): ...

    class MatrixShapeError(ShapeError, LinAlgError): ...

    class AxisError(ShapeError, IndexError): ...

else:

    def __getattr__(name: str) -> Any:
        """Return LinAlgError, MatrixShapeError or AxisError, created on first use: a base class is
        NumPy's, and NumPy loads slowly."""
        if name not in ("LinAlgError", "MatrixShapeError", "AxisError"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import numpy as np

        class LinAlgError(MagmathError, np.linalg.LinAlgError):
            """A matrix that cannot be factorized: singular, not positive definite."""

        class MatrixShapeError(ShapeError, LinAlgError):
            """Shapes that are not those of matrices, or of square matrices."""

        class AxisError(ShapeError, np.exceptions.AxisError):
            """An array has no such axis."""

        for error_class in (LinAlgError, MatrixShapeError, AxisError):
            error_class.__qualname__ = error_class.__name__
            globals()[error_class.__name__] = error_class
        return globals()[name]
