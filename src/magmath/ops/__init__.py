"""The operations: one record each, in a file per family, all in the table `OPERATIONS`."""

from magmath.graph import Operation
from magmath.ops import creation, elementwise, leaves, linalg, manipulation, movement, reductions

OPERATIONS: dict[str, Operation] = {
    **leaves.OPERATIONS,
    **elementwise.OPERATIONS,
    **reductions.OPERATIONS,
    **manipulation.OPERATIONS,
    **linalg.OPERATIONS,
    **creation.OPERATIONS,
    **movement.OPERATIONS,
}
