"""PyTorch's modules as modules of magmath.

`torch.export` records the operators that a module calls, in training and in evaluation mode, as
programs. `TorchModule` runs these programs with magmath's functions (`aten_operators.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any, final

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
)
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils import _pytree as pytree

import magmath as mm
from magmath.errors import OptionError, UnsupportedError
from magmath.interop.named_parts import NamedParts, add_variables
from magmath.interop.reading_torch.average_moments import average_moments_of_tensors
from magmath.interop.reading_torch.torch_program import (
    TorchProgram,
    in_known_operators,
    silent,
)
from magmath.nn import Buffer, Parameter


@final
class TorchModule(NamedParts):
    """A module of PyTorch that computes on magmath.

    Its parameters and buffers have the paths that they have in PyTorch, so `load_state_dict` takes
    the `state_dict` of the original, and the original takes that of this module, which has a tensor
    with several paths once: `aliases` has the others. Buffers that are not persistent in PyTorch
    are constants, unless the module assigns them.
    """

    def __init__(self, source: torch.nn.Module, programs: Mapping[bool, TorchProgram]) -> None:
        super().__init__()
        self._programs = dict(programs)
        self._source = type(source).__name__
        self._variables: dict[str, Parameter | Buffer] = {}
        variable_of: dict[int, Parameter | Buffer] = {}  # one for a tensor with several paths
        for path, parameter in source.named_parameters(remove_duplicate=False):
            if id(parameter) not in variable_of:
                variable_of[id(parameter)] = variable = Parameter(mm.asarray(parameter.detach()))
                variable.trainable = parameter.requires_grad
            self._variables[path] = variable_of[id(parameter)]
        for path, buffer in source.named_buffers(remove_duplicate=False):
            if all(program.has_constant(path) for program in self._programs.values()):
                continue
            if id(buffer) not in variable_of:
                variable_of[id(buffer)] = Buffer(mm.asarray(buffer.detach()))
            self._variables[path] = variable_of[id(buffer)]
        add_variables(self, self._variables)

    def __repr__(self) -> str:
        return f"TorchModule({self._source})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs, nested as those of the original."""
        program = self._programs[self.training]
        return program.run(self._variables, args, kwargs)


def from_torch(
    module: torch.nn.Module, *args: Any, variable_axes: int = 2, **kwargs: Any
) -> TorchModule:
    """Return a module of magmath that computes what a module of PyTorch computes.

    args, kwargs   an example of the arguments: tensors, nested tensors, and numbers
    variable_axes  the number of first axes of each array whose extents may differ from those of the
                   example: 2 for samples and words, 4 for images of any size. Export takes longer
                   for more axes

    The result takes arrays nested like the example. Extents of 1, extents that the module needs,
    numbers and None are fixed. If PyTorch cannot keep so many extents variable, the first axis
    is, or none.

    Parameters and buffers are copied; the module of PyTorch is not changed, and not needed any
    more. In training mode the result does what the original does in training mode, and likewise in
    evaluation mode. It takes part in everything that other modules do: gradients, `compile`,
    `Trainer`, strategies, `state_dict` with PyTorch's names. Random numbers, as of dropout, are
    those of magmath.

    Raises UnsupportedError if PyTorch cannot export the module (its control flow must not depend on
    values), and for operators that magmath does not have. Source: the intermediate representation
    of `torch.export`.
    """
    if not isinstance(module, torch.nn.Module):
        raise OptionError(
            f"from_torch: needs a module of PyTorch, was given {type(module).__name__}"
            "; modules of magmath need no conversion"
        )
    try:
        signature(module.forward).bind(*args, **kwargs)
    except TypeError as error:
        raise OptionError(
            f"from_torch: needs an example of the arguments of {type(module).__name__}.forward: "
            f"{error}; give an example, as in from_torch(module, x)"
        ) from None
    was_training = {part: part.training for part in module.modules()}
    try:
        with silent(), average_moments_of_tensors(module):
            programs = {
                mode: _export(module, mode, args, kwargs, variable_axes) for mode in (True, False)
            }
    finally:
        for part, training in was_training.items():
            part.training = training
    result = TorchModule(module, programs)
    return result if module.training else result.eval()  # type: ignore[return-value]


def _export(
    module: torch.nn.Module, training: bool, args: Any, kwargs: Any, axes: int
) -> TorchProgram:
    """Return the program of one mode, with the extents of `axes` axes variable if possible."""
    module.train(training)
    errors = []
    for count in sorted({axes, min(axes, 1), 0}, reverse=True):
        shapes = _variable_shapes(module, args, kwargs, count)
        try:
            exported = torch.export.export(
                module, args, kwargs, dynamic_shapes=shapes, strict=False
            )
        except Exception as error:
            errors.append(error)
        else:
            return TorchProgram(in_known_operators(exported))
    mode = "training" if training else "evaluation"
    raise UnsupportedError(
        f"from_torch: torch.export cannot record {type(module).__name__} in {mode} mode: "
        f"{_reason_and_remedy(errors[-1])}"
    ) from errors[-1]


def _reason_and_remedy(error: Exception) -> str:
    """Return why PyTorch cannot export a module, and what to change."""
    if isinstance(error, _VALUES_NEEDED):
        operator = getattr(error, "func", None)
        where = f" (of {operator})" if operator is not None else ""
        return (
            f"its control flow must not depend on values{where}, nor its shapes; write "
            f"torch.where(condition, x, y) in place of if, and parts that need a value with mm.nn"
        )
    reason = str(error).strip().split("\n")[0]
    return f"{reason}; if the module takes the example in PyTorch, write this part with mm.nn"


_VALUES_NEEDED = (
    GuardOnDataDependentSymNode,
    DataDependentOutputException,
    DynamicOutputShapeException,
)
"""PyTorch's errors for a module that needs the value of an array while it is recorded."""


def _variable_shapes(module: torch.nn.Module, args: Any, kwargs: Any, axes: int) -> Any:
    """Return the description of arguments whose first `axes` extents may vary, except extents of 1,
    which PyTorch fixes."""
    shapes: Any = torch.export.ShapesCollection()  # type: ignore[no-untyped-call]
    for value in pytree.tree_leaves((args, kwargs)):
        if isinstance(value, torch.Tensor):
            extents = enumerate(value.shape[:axes])
            shapes[value] = {i: torch.export.Dim.AUTO for i, n in extents if n > 1}
    return shapes.dynamic_shapes(module, args, kwargs)
