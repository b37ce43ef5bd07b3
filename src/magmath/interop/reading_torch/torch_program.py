"""Programs of `torch.export`, run with magmath's functions."""

from __future__ import annotations

import logging
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from inspect import signature
from io import BytesIO, StringIO
from typing import TYPE_CHECKING, Any, final

import torch
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx.experimental.symbolic_shapes import is_concrete_int
from torch.utils import _pytree as pytree

import magmath as mm
from magmath.arrays.array import as_array
from magmath.errors import ShapeError, UnsupportedError
from magmath.interop.reading_torch.aten_operators import OPERATORS, OTHER_OVERLOADS

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.export.graph_signature import InputSpec

NodeValues = dict[torch.fx.Node, Any]


@final
class TorchProgram:
    """The operators of a module in one mode.

    exported   of operators in `OPERATORS` only, as `in_known_operators` returns it
    """

    def __init__(self, exported: ExportedProgram) -> None:
        self._exported = exported
        self._inputs = exported.graph_signature.input_specs
        self._outputs = exported.graph_signature.output_specs
        self._constants = {
            name: mm.asarray(value.detach()) if isinstance(value, torch.Tensor) else value
            for name, value in exported.constants.items()
        }
        self._calls = [
            (node, _function(node)) for node in exported.graph.nodes if node.op == "call_function"
        ]
        self._placeholders = [n for n in exported.graph.nodes if n.op == "placeholder"]
        (self._result,) = next(n for n in exported.graph.nodes if n.op == "output").args
        self._last_uses = _last_uses([node for node, _ in self._calls], self._result)

    def __deepcopy__(self, memo: dict[int, object]) -> TorchProgram:
        """Return the program itself, which does not change."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        file = BytesIO()
        with silent():
            torch.export.save(self._exported, file)
        return _load_program, (file.getvalue(),)

    def has_constant(self, path: str) -> bool:
        """Return True if a buffer is a constant: not persistent in PyTorch, and never assigned."""
        return path in self._constants and all(path != output.target for output in self._outputs)

    def run(self, variables: Mapping[str, Any], args: Any, kwargs: Any) -> Any:
        """Return the outputs for these arguments; assign the buffers and parameters that the module
        updates. Arguments that it updates keep their values."""
        spec = self._exported.call_spec
        arguments = iter(_leaves((tuple(args), dict(kwargs)), spec.in_spec))
        values: NodeValues = {
            node: self._input(node, kind, variables, arguments)
            for node, kind in zip(self._placeholders, self._inputs, strict=True)
        }
        for node, function in self._calls:
            operands, options = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
            values[node] = result = function(*operands, **options)
            if result is None and node.users:
                raise _missing_result(node)
            for unused in self._last_uses.get(node, ()):  # releases memory as PyTorch does
                del values[unused]
        results = torch.fx.node.map_arg(self._result, values.__getitem__)
        outputs = []
        for value, output in zip(results, self._outputs, strict=True):
            if output.kind is OutputKind.USER_OUTPUT:
                outputs.append(value)
            elif output.kind is not OutputKind.USER_INPUT_MUTATION:  # a buffer or a parameter
                variables[str(output.target)].assign(value)
        return pytree.tree_unflatten(outputs, spec.out_spec)

    def _input(
        self,
        node: torch.fx.Node,
        spec: InputSpec,
        variables: Mapping[str, Any],
        arguments: Iterator[Any],
    ) -> Any:
        """Return the value of a placeholder: the next argument, a variable or a constant."""
        if spec.kind is InputKind.USER_INPUT:
            return _checked(next(arguments), node.meta["val"])
        name = str(spec.target)
        return variables[name] if name in variables else self._constants[name]


def in_known_operators(exported: ExportedProgram) -> ExportedProgram:
    """Return the same program in operators of `OPERATORS`.

    Raises UnsupportedError if there is none.
    """
    exported = exported.run_decompositions({})
    table = dict(torch.export.default_decompositions())
    missing = _missing_operators(exported)
    while known := [target for target in missing if target in table]:  # others express them
        exported = exported.run_decompositions({target: table.pop(target) for target in known})
        missing = _missing_operators(exported)
    if missing:
        names = ", ".join(sorted({str(t) for t in missing if str(t) != "with_effects"}))
        raise UnsupportedError(
            f"from_torch: the module calls operators that magmath does not have: {names}; "
            f"write the part that calls them with mm.nn, and convert the others"
        )
    return exported


def _load_program(data: bytes) -> TorchProgram:
    with silent():
        return TorchProgram(torch.export.load(BytesIO(data)))


@contextmanager
def silent() -> Iterator[None]:
    """Suppress what PyTorch prints, logs and warns of while it exports, such as failed attempts to
    keep extents variable."""
    former = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(former)


def _leaves(arguments: Any, spec: Any) -> list[Any]:
    """Return the values among nested arguments in the order of the example, which that of names
    does not change.

    Raises ShapeError for arguments that are nested otherwise.
    """
    try:
        leaves: list[Any] = spec.flatten_up_to(arguments)
    except ValueError:
        leaves = [arguments]
    if all(map(pytree.tree_is_leaf, leaves)):
        return leaves
    raise ShapeError(
        f"TorchModule: needs arguments nested as the example was, {_text(spec)}, was given "
        f"{_text(pytree.tree_structure(arguments))}; call from_torch with an example of this form"
    )


def _checked(argument: Any, example: Any) -> Any:
    """Return an argument, arrays of other libraries as arrays.

    Raises ShapeError unless it has the extents and numbers that the program was made for.
    """
    if not isinstance(example, torch.Tensor):
        if getattr(argument, "ndim", 0) or argument != example:
            raise ShapeError(
                f"TorchModule: was made for the argument {example!r}, was given {argument!r}; call "
                f"from_torch again with this value"
            )
        return argument
    array = as_array("TorchModule", argument)
    fixed = [int(n) if is_concrete_int(n) else None for n in example.shape]
    if len(fixed) != array.ndim or any(
        n not in (None, m) for n, m in zip(fixed, array.shape, strict=True)
    ):
        needed = ", ".join(["*" if n is None else str(n) for n in fixed])
        raise ShapeError(
            f"TorchModule: needs an array of shape ({needed}), was given {array.shape}; extents "
            f"other than * are those of the example, call from_torch with another one"
        )
    return array


def _text(spec: Any) -> str:
    """Return the arguments of a call as text, with * for an array."""
    args, kwargs = pytree.tree_unflatten(["*"] * spec.num_leaves, spec)
    named = [f"{name}={value}" for name, value in kwargs.items()]
    return f"({', '.join([str(value) for value in args] + named)})".replace("'", "")


def _is_python(target: Any) -> bool:
    """Return True for functions of Python numbers, by which programs compute sizes, such as
    `torch.sym_max`."""
    module = getattr(target, "__module__", "")
    return target is operator.getitem or module in ("_operator", "math", "builtins", "torch")


def _missing_operators(exported: ExportedProgram) -> set[Any]:
    calls = [node for node in exported.graph.nodes if node.op == "call_function"]
    return {node.target for node in calls if not (_is_python(node.target) or _is_known(node))}


def _is_known(node: torch.fx.Node) -> bool:
    """Return True if `OPERATORS` has the operator of a node, for its number of arguments."""
    function = OPERATORS.get(_name(node.target))
    if function is None or str(node.target).removeprefix("aten.") in OTHER_OVERLOADS:
        return False
    try:
        signature(function).bind(*node.args, **node.kwargs)
    except TypeError:
        return False
    return True


def _name(target: Any) -> str:
    """Return the name of an operator of ATen without its overload. Operators of other namespaces
    keep theirs, so that `OPERATORS` has none of them."""
    packet = str(getattr(target, "overloadpacket", target))
    return packet.removeprefix("aten.")


def _function(node: torch.fx.Node) -> Callable[..., Any]:
    target: Any = node.target
    return target if _is_python(target) else OPERATORS[_name(target)]


def _missing_result(node: torch.fx.Node) -> UnsupportedError:
    """Return the error for a node without a value that other nodes, or the module's results, use:
    a further result of an operator, of which magmath computes the first."""
    source = node.all_input_nodes[0].target if node.all_input_nodes else node.target
    return UnsupportedError(
        f"TorchModule: the module uses {node.name}, a further result of {_name(source)} that "
        f"magmath does not compute, such as the positions of maxima; use the first result alone, "
        f"or write this part with mm.nn"
    )


def _last_uses(
    calls: Sequence[torch.fx.Node], result: Any
) -> dict[torch.fx.Node, list[torch.fx.Node]]:
    """Return the nodes whose values no call after this one reads, by call."""
    read_later: set[torch.fx.Node] = set()
    torch.fx.node.map_arg(result, read_later.add)
    last_uses: dict[torch.fx.Node, list[torch.fx.Node]] = {}
    for node in reversed(calls):
        for source in dict.fromkeys([node, *node.all_input_nodes]):
            if source not in read_later:
                read_later.add(source)
                last_uses.setdefault(node, []).append(source)
    return last_uses
