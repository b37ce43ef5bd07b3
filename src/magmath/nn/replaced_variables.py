"""The call of a module with other values of its variables: gradients and batches of parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, final

from magmath.arrays.array import Array
from magmath.arrays.tree import flatten
from magmath.engine.traces import tracing
from magmath.engine.traces.tracing import Scope, VariableState
from magmath.graph import Node
from magmath.nn.module import check_module
from magmath.nn.state_file import values_by_variable
from magmath.transform.function_argument import with_keywords_last
from magmath.transform.traced_function import assign_all, trace_function

if TYPE_CHECKING:
    from magmath.nn.module import Module


def functional_call(
    module: Module, parameters: Mapping[str, Any], /, *args: Any, **kwargs: Any
) -> Any:
    """Return the outputs of a module for other values of some of its parameters and buffers.

        mm.grad(lambda p: mm.mean(mm.nn.functional_call(module, p, x) ** 2))(parameters)

    parameters  {path: array or nested lists of numbers}, as `Module.state_dict` returns them, all
                or some; each has the shape of the variable, and is converted to its type

    The module does not change: what its call assigns to the replaced variables is lost, such as
    running moments that `parameters` contains. Others, such as running moments that it does not
    contain, are assigned as in any call. The outputs depend on the given arrays, so that gradients
    with respect to these, `mm.vmap` over stacked ones and `mm.compile` are as for any function of
    arrays. The module must be built; its call can request no values, as in these.

    Raises WeightsError, which lists all problems, for unknown paths and for values of other shapes
    or types. Name and semantics are PyTorch's, `torch.func.functional_call`.
    """
    check_module("functional_call", module)
    trace = tracing.current()
    inventory = module._built_inventory("functional_call")
    if trace is not None:
        trace.depend_on_observed_state(inventory.structure)
    values = values_by_variable(
        "functional_call", inventory.variables, inventory.aliases, parameters
    )
    leaves, tree = flatten((*args, kwargs))
    traced = trace_function(
        "functional_call",
        with_keywords_last(module),
        tree,
        leaves,
        scope=_ReplacingScope({v.leaf: value.node for v, value in values.items()}),
    )
    results, assigned = traced.applied({})
    assign_all(assigned)
    return traced.unflattened([Array(node) for node in results])


@final
class _ReplacingScope(Scope):
    """The effects of a function for which variables, given by their leaves, have other values."""

    def __init__(self, values: dict[Node, Node]) -> None:
        super().__init__(can_loop=True)
        self._values = values

    def value_of(self, variable: VariableState) -> Node:
        value = self._values.get(variable.leaf)
        if value is not None:
            return value
        value = super().value_of(variable)
        is_assigned = variable.leaf in self.assigned
        # outside of programs a new value is an expression like any other
        return value.inputs[1] if is_assigned and self.outer is None else value

    def assign(self, variable: VariableState, value: Node) -> None:
        if variable.leaf in self._values:
            self._values[variable.leaf] = value
        else:
            super().assign(variable, value)
