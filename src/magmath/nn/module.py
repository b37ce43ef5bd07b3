"""Module: a part of a network, a Python object with variables and other modules.

A module class defines `__call__`. Its attributes, and lists, tuples and dictionaries in them,
contain parameters, buffers and other modules; the path to a variable ("blocks.3.conv.weight") is
its name. There is no registration, and `__init__` need not call that of this class. A part that two
modules share is one part. The attributes are walked on the first access to the parts, not in each
step.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from inspect import isfunction
from typing import TYPE_CHECKING, Any, ClassVar

from magmath.arrays.array import Array
from magmath.arrays.variables.variable import Variable
from magmath.arrays.variables.variable_list import depend_on_trainable_flags
from magmath.core.dtypes import as_dtype, compute_dtype, float32
from magmath.core.foreign_keywords import KEYWORDS, check_assigned_name
from magmath.core.foreign_names import hint, is_of_package, missing_attribute
from magmath.core.foreign_network_names import MODULE_ATTRIBUTES
from magmath.core.keyword_hints import KeywordHints
from magmath.engine.traces import tracing
from magmath.engine.traces.captured_arrays import invalidate_captures
from magmath.errors import DTypeError, OptionError
from magmath.nn.abstract import abstract_inputs, trace_call, types_of_shapes
from magmath.nn.call_state import CALLS, Materialization
from magmath.nn.describe import representation, summary
from magmath.nn.forward_hooks import forward_hook
from magmath.nn.freezing import Filter, can_select, set_trainable
from magmath.nn.inventory import (
    Inventory,
    check_replacement,
    invalidate_inventories,
    missing_variable_error,
    name_by_path,
)
from magmath.nn.module_call import wrapped_call
from magmath.nn.state_file import IncompatibleKeys, assign_state, load, save
from magmath.nn.variables import (
    Buffer,
    Deferred,
    Parameter,
    RngState,
    is_layer,
    variables_made,
)

if TYPE_CHECKING:
    from magmath.api.creation import DTypeLike

_STRUCTURAL = (Variable, Deferred, list, tuple, dict)

_HIDDEN = ("_inventory", "_mode")
"""Attributes that are not parts: the cached walk, and the object that represents the mode in
traces."""


class Module(metaclass=KeywordHints):
    """The base class of all layers and networks.

        class Block(mm.nn.Module):
            def __init__(self, units):
                self.dense = mm.nn.Dense(units)
                self.norm = mm.nn.LayerNorm()

            def __call__(self, x):
                return x + self.norm(mm.relu(self.dense(x)))

    Layers make their parameters at the first call, or when `build` is called with the shape of an
    input. `training` is True until `eval` is called, and again after `train`.
    """

    keeps_float32: ClassVar[bool] = False
    """True for modules that read their parameters in float32 in every precision, and that `astype`
    does not convert to half types, such as normalization."""
    training = True
    _inventory: Inventory[Module] | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__call__" in vars(cls):
            call = wrapped_call(vars(cls)["__call__"], is_layer(cls))
            cls.__call__ = call  # type: ignore[method-assign]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs for these inputs; each module class defines it."""
        remedy = "; rename its method forward" if "forward" in dir(type(self)) else ""
        raise NotImplementedError(
            f"{type(self).__name__}: a module needs a method __call__(self, x) that returns its "
            f"output{remedy}"
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _METHODS:
            raise AttributeError(
                f"{type(self).__name__}: {name} is a method of mm.nn.Module, which this attribute "
                f"would replace; choose another name"
            )
        if name in KEYWORDS and is_layer(type(self)):
            check_assigned_name(self, name)
        former = self.__dict__.get(name)
        if isinstance(value, Deferred):
            value.set_owner(type(self), name)
        elif isinstance(former, _STRUCTURAL) and former is not value:
            check_replacement(type(self).__name__, name, former, value)
        object.__setattr__(self, name, value)
        if former is value:  # as after self.count += 1
            return
        if isinstance(value, (Module, *_STRUCTURAL)) or isinstance(former, (Module, *_STRUCTURAL)):
            invalidate_inventories()
            invalidate_captures(self)
        elif name == "training":
            if id(self) not in CALLS.forced_modes.value:  # otherwise it is temporary
                invalidate_captures(vars(self).get("_mode"))
        elif not (CALLS.modules or tracing.current() is not None or _is_equal(former, value)):
            invalidate_captures(self)  # compiled functions have read the former value

    if not TYPE_CHECKING:  # otherwise type checkers would accept any name

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError; for a name of PyTorch's modules it says what to write."""
            raise missing_attribute(
                f"{type(self).__name__!r} object", name, hint(MODULE_ATTRIBUTES, name)
            )

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        invalidate_inventories()
        invalidate_captures(self)

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without the cached walk, for pickle and copy."""
        return {name: value for name, value in vars(self).items() if name not in _HIDDEN}

    def __repr__(self) -> str:
        return representation(self, Module)

    # parts --------------------------------------------------------------------------------------

    def parts(self) -> Iterable[tuple[str, Any]]:
        """Return the attributes by name, which may contain modules and variables."""
        return [(name, value) for name, value in vars(self).items() if name not in _HIDDEN]

    def materialize(self, dtype: DTypeLike = None, **shapes: tuple[int, ...]) -> None:
        """Make the variables that attributes defer (`nn.deferred`), with these shapes.

        Their type is the default floating point type unless `dtype` is given. Attributes that have
        a variable keep it.
        """
        for name, shape in shapes.items():
            part = self.__dict__.get(name)
            if isinstance(part, Deferred):
                if CALLS.modules:
                    CALLS.materialized.append(Materialization(self, name, part, part.is_made))
                setattr(self, name, part.make(shape, dtype))

    def _make_states(self) -> None:
        """Make the variables of known shapes that need a pool, which may not exist yet when the
        module is made. It is called before the variables are listed."""

    def _current_inventory(self) -> Inventory[Module]:
        """Return the parts, whether or not all are built."""
        inventory = self._inventory
        if inventory is None or not inventory.is_current:
            inventory = Inventory(self, Module, inventory)
            object.__setattr__(self, "_inventory", inventory)
            name_by_path(inventory.variables)
        return inventory

    def _name_new_variables(self) -> None:
        """Name the variables that were made since the parts were found last; those that a call
        stores, such as states of a recurrent module, are no reason to walk again."""
        known, made = self._inventory, variables_made()
        if known is None or known.variables_made != made:
            self._current_inventory().variables_made = made

    def _built_inventory(
        self, operation: str, called: Collection[int] | None = None
    ) -> Inventory[Module]:
        """Return the parts. Raises StateError, which names the operation, if a parameter has no
        shape yet.

        called   the ids of the modules that a call of this one has called, if it was called just
                 now
        """
        inventory = self._current_inventory()
        if not inventory.has_states:
            for module in inventory.modules.values():
                module._make_states()
            inventory = self._current_inventory()
            inventory.has_states = True
        if inventory.deferred:
            raise missing_variable_error(
                operation, inventory, next(iter(inventory.deferred)), called
            )
        return inventory

    @property
    def is_built(self) -> bool:
        """True if all parts have their parameters."""
        return not self._current_inventory().deferred

    def named_parameters(self) -> list[tuple[str, Parameter]]:
        """Return the parameters with their paths, in the order of the attributes; shared ones once.

        A floating point `mm.variable` in an attribute counts as a parameter too. Raises
        StateError before the module is built.
        """
        return self._parameters("parameters")

    def _parameters(self, operation: str) -> list[tuple[str, Parameter]]:
        return _parameters_in(self._built_inventory(operation))

    def parameters(self) -> list[Parameter]:
        """Return the parameters, in the order of `named_parameters`."""
        return [parameter for _, parameter in self.named_parameters()]

    def trainable(self) -> list[Parameter]:
        """Return the parameters that are not frozen, which training updates."""
        trace = tracing.current()
        if trace is not None:
            depend_on_trainable_flags()
            trace.depend_on_observed_state(self._current_inventory().structure)
        return [p for _, p in self._parameters("trainable") if p.trainable]

    def named_buffers(self) -> list[tuple[str, Variable]]:
        """Return the buffers and random states with their paths."""
        variables = self._built_inventory("buffers").variables
        return [(path, v) for path, v in variables.items() if not _is_parameter(v)]

    def buffers(self) -> list[Variable]:
        """Return the buffers and random states, in the order of `named_buffers`."""
        return [buffer for _, buffer in self.named_buffers()]

    def named_modules(self) -> list[tuple[str, Module]]:
        """Return this module, under "", and all modules in it by path; shared ones once."""
        return list(self._current_inventory().modules.items())

    def modules(self) -> list[Module]:
        """Return the module itself and all modules in it."""
        return list(self._current_inventory().modules.values())

    def apply(self, function: Callable[[Module], object]) -> Module:
        """Call a function with each module, inner modules before outer ones; return the module."""
        for module in reversed(self.modules()):
            function(module)
        return self

    # modes --------------------------------------------------------------------------------------

    def train(self, mode: bool = True) -> Module:
        """Set training mode (dropout, batch statistics) in all modules; return the module.

        Inner modules that override this method decide for themselves and the modules in them.
        """
        overriding: list[str] = []
        for path, module in self.named_modules():
            if path.startswith(tuple(overriding)):
                continue
            if path and _has_own_train(module):
                module.train(mode)
                overriding.append(f"{path}.")
            elif module.training is not mode:
                module.training = mode
        return self

    def eval(self) -> Module:
        """Set evaluation mode in all modules; return the module."""
        return self.train(False)

    @contextmanager
    def mode(self, training: bool) -> Iterator[None]:
        """Set training or evaluation mode in all modules within this block, as `train` does.

        Overrides of `train` are called again at the end, for what else they set.
        """
        former = [(module, module.training) for module in self.modules()]
        forced_modes = CALLS.forced_modes.value.union([id(module) for module, _ in former])
        try:
            with CALLS.forced_modes.replaced(forced_modes):
                try:
                    self.train(training)
                    yield
                finally:
                    for module, was_training in former:
                        if _has_own_train(module):
                            module.train(was_training)
        finally:
            for module, was_training in former:
                object.__setattr__(module, "training", was_training)

    def freeze(self, which: Filter = None) -> Module:
        """Exclude parameters from training; return the module.

        which   a path such as "encoder" or "blocks.*.norm", in which * matches any one name, for
                all parameters below it; a function of path and parameter; None for all

        Raises OptionError if a path matches no parameter, StateError before the layers are built
        that `which` may select.
        """
        set_trainable("freeze", self._selectable("freeze", which), which, False)
        return self

    def unfreeze(self, which: Filter = None) -> Module:
        """Include parameters in training again; return the module. `which` as in `freeze`."""
        set_trainable("unfreeze", self._selectable("unfreeze", which), which, True)
        return self

    def _selectable(self, operation: str, selection: Filter) -> list[tuple[str, Parameter]]:
        """Return the parameters that exist. Raises StateError, which names the operation, if the
        filter may select one that does not."""
        inventory = self._current_inventory()
        for path in inventory.deferred:
            if can_select(selection, path):
                raise missing_variable_error(operation, inventory, path)
        return _parameters_in(inventory)

    # building -----------------------------------------------------------------------------------

    def build(self, *shapes: Any, dtype: DTypeLike = None) -> Module:
        """Make all parameters for inputs of these shapes, batch included; return the module.

        `module.build((1, 784))` traces a call with an input of that shape and computes only the
        initial values of the parameters. Several shapes are those of several arguments; for keyword
        arguments or nested inputs use `nn.abstract.trace_call`. dtype: the type of the inputs, by
        default the default floating point type.
        """
        inputs = abstract_inputs("build", first_called(self), shapes, dtype)
        called: set[int] = set()
        with (
            forward_hook(lambda module, _: called.add(id(module))),
            types_of_shapes("build", dtype),
        ):
            trace_call(self, inputs)
        self._built_inventory("build", called)
        return self

    def _first_called(self) -> Module:
        """Return the module that receives the inputs first."""
        return self

    def summary(self, *shapes: Any, dtype: DTypeLike = None) -> str:
        """Return a table of the layers with their output shapes and numbers of parameters, for
        inputs of these shapes (see `build`)."""
        inputs = abstract_inputs("summary", first_called(self), shapes, dtype)
        with types_of_shapes("summary", dtype):
            return summary(self, Module, inputs, partial(self._built_inventory, "summary"))

    def astype(self, dtype: DTypeLike) -> Module:
        """Convert floating point parameters and buffers to another type; return the module.

        Modules with `keeps_float32`, such as normalization, are not converted to half types. An
        optimizer that updates parameters of a half type has a float32 master copy of each. Raises
        DTypeError if the type is not floating point, StateError before the module is built.
        """
        element = as_dtype(dtype)
        if not element.is_floating:
            raise DTypeError(f"Module.astype: needs a floating point type, was given {element}")
        self._built_inventory("astype")
        float32_ids = (
            self._variables_in_float32() if compute_dtype(element) is not element else set()
        )
        for v in self._current_inventory().variables.values():
            if v.dtype.is_floating:
                v.convert(float32 if id(v) in float32_ids else element)
        return self

    def _variables_in_float32(self) -> set[int]:
        """Return the ids of the variables of modules that keep float32."""
        ids: set[int] = set()
        for module in self.modules():
            if module.keeps_float32:
                ids |= set(map(id, module._current_inventory().variables.values()))
        return ids

    # state --------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Array]:
        """Return snapshots of parameters, buffers and random states by path.

        Later training does not change them. A shared variable occurs once, under its first path.
        """
        return {
            path: v.snapshot() for path, v in self._built_inventory("state_dict").variables.items()
        }

    def aliases(self) -> dict[str, str]:
        """Return the other paths of shared variables, each with the path used by `state_dict`."""
        return dict(self._built_inventory("aliases").aliases)

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> IncompatibleKeys:
        """Assign values by path: arrays of magmath, NumPy or torch. The module must be built.

        Returns the paths that are missing in `state` (`missing_keys`) and those that the module
        lacks (`unexpected_keys`); with `strict` both are errors. Raises WeightsError, which lists
        all problems, before any value changes.
        """
        inventory = self._built_inventory("load_state_dict")
        return assign_state(inventory.variables, inventory.aliases, state, strict)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `state_dict` to a safetensors file, complete or not at all."""
        save(self, path)

    def load(self, path: str | os.PathLike[str], strict: bool = True) -> None:
        """Load a file that `save` has written; the module must be built.

        Raises WeightsError if the file is damaged or belongs to another module, its subclass
        MissingWeightsError, a FileNotFoundError, if there is none, and StateError if the module
        is not built: the shapes in a file do not say which units and kernels the layers
        have, so they would not be compared.
        """
        self._built_inventory("load")
        load(self, path, strict)


def _has_own_train(module: Module) -> bool:
    return type(module).train is not Module.train


_METHODS = frozenset(name for name, value in vars(Module).items() if isfunction(value))


def first_called(module: Module) -> Module:
    """Return the module that receives the inputs of a module first: the module itself, or the first
    layer of a sequence."""
    return module._first_called()


def deferred_variables(module: Module) -> list[Deferred]:
    """Return the placeholders of the variables that a module and its parts have not made yet."""
    return list(module._current_inventory().deferred.values())


def _is_equal(former: Any, value: Any) -> bool:
    """Return True for equal numbers or texts of one class."""
    is_plain = isinstance(value, (bool, int, float, complex, str))
    return is_plain and type(former) is type(value) and former == value


def _parameters_in(inventory: Inventory[Module]) -> list[tuple[str, Parameter]]:
    """Return the parameters among the variables that exist, with their paths."""
    return [(path, v) for path, v in inventory.variables.items() if _is_parameter(v)]  # type: ignore[misc]


def _is_parameter(variable: Variable) -> bool:
    if isinstance(variable, (Buffer, RngState)):
        return False
    return isinstance(variable, Parameter) or variable.dtype.is_floating


def check_module(operation: str, module: object) -> Module:
    """Return the module. Raises OptionError with a remedy for any other object."""
    if isinstance(module, Module):
        return module
    if is_of_package(module, "torch.nn.modules"):
        raise OptionError(
            f"{operation}: {type(module).__name__} of PyTorch is not a module of magmath; convert "
            f"it with mm.interop.from_torch(module, example)"
        )
    remedy = "a module is an object such as mm.nn.Dense(10)"
    if isinstance(module, type) and issubclass(module, Module):
        remedy = f"write mm.nn.{module.__name__}(…), with parentheses"
    elif isinstance(module, str):
        remedy = f'for an activation write mm.nn.Activation("{module}")'
    elif callable(module):
        remedy = "make a module of a function with mm.nn.Lambda(function)"
    raise OptionError(f"{operation}: {module!r} is not a module; {remedy}")
