"""Groups of variables with their own settings, such as no decay for biases.

A group is another optimizer of the same class with other settings. Its rule is used for the
variables whose names, or paths in the trained module, match the group's pattern.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import Field, fields, replace
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Generic, NoReturn, Protocol, TypeVar, final
from weakref import ref

from magmath.arrays.variables.variable import Variable
from magmath.errors import OptionError, StateError
from magmath.optim.rates import LearningRate

OF_ALL = ("clip_value", "clip_norm", "groups")
"""Settings of a whole step, which a group cannot change."""


class GroupedOptimizer(Protocol):
    """What groups use of an optimizer: a dataclass whose fields are its settings."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def learning_rate(self) -> LearningRate:
        """A number, a schedule, or a function of the step."""

    @property
    def groups(self) -> Mapping[str, Mapping[str, Any]]:
        """Other settings for some variables, by a pattern of their names."""


@final
class GroupSettings(dict[str, Any]):
    """Settings of groups, or of one group, which are part of compiled steps: a copy of a mapping,
    which cannot be changed.

    It is a dictionary, so it can be shown, merged with others and written as JSON like one.
    """

    def __init__(self, settings: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()) -> None:
        super().__init__(
            (name, GroupSettings(value) if isinstance(value, Mapping) else value)
            for name, value in dict(settings).items()
        )

    def __reduce__(self) -> tuple[type[GroupSettings], tuple[dict[str, Any]]]:
        return GroupSettings, (dict(self),)

    def __setitem__(self, name: str, value: object) -> NoReturn:
        _refuse_change(f"{name} cannot be assigned")

    def __delitem__(self, name: str) -> NoReturn:
        _refuse_change(f"{name} cannot be deleted")

    def __ior__(self, others: object) -> NoReturn:  # type: ignore[misc]
        _refuse_change("they cannot be updated")

    def update(self, *args: object, **kwargs: object) -> NoReturn:
        """Raise StateError."""
        _refuse_change("they cannot be updated")

    def setdefault(self, name: str, default: object = None) -> NoReturn:
        """Raise StateError."""
        _refuse_change(f"{name} cannot be assigned")

    def pop(self, name: str, *default: object) -> NoReturn:
        """Raise StateError."""
        _refuse_change(f"{name} cannot be deleted")

    def popitem(self) -> NoReturn:
        """Raise StateError."""
        _refuse_change("they cannot be deleted")

    def clear(self) -> NoReturn:
        """Raise StateError."""
        _refuse_change("they cannot be deleted")


def _refuse_change(change: str) -> NoReturn:
    raise StateError(
        f"groups: {change}, the settings of groups are part of compiled steps; let the "
        f"learning_rate of the group be a schedule or a function of the step, or make another "
        f"optimizer: dataclasses.replace(optimizer, groups=…)"
    )


GroupRule = TypeVar("GroupRule", bound=GroupedOptimizer)


@final
class Groups(Generic[GroupRule]):
    """The groups of an optimizer; number 0 is the optimizer itself, for all other variables.

    `members` are the optimizers whose rules are used, `rate_index` the index of each one's learning
    rate. The optimizer owns its groups, so these refer to it weakly: its states are freed with its
    last reference.
    """

    def __init__(self, optimizer: GroupRule) -> None:
        self._patterns = list(optimizer.groups)
        self._optimizer = ref(optimizer)
        self._others: list[GroupRule] = []
        self._paths: dict[int, tuple[ref[Variable], set[str]]] = {}
        self._index_of: dict[frozenset[str], int] = {}
        self.rate_index = [0]
        self._own_rates: list[GroupRule] = []
        for pattern, settings in optimizer.groups.items():
            self._others.append(_member(optimizer, pattern, settings))
            if "learning_rate" in settings:
                self._own_rates.append(self._others[-1])
            self.rate_index.append(len(self._own_rates) if "learning_rate" in settings else 0)

    @property
    def members(self) -> list[GroupRule]:
        """The optimizer and those of the groups, by number."""
        optimizer = self._optimizer()
        assert optimizer is not None, "the optimizer owns its groups"
        return [optimizer, *self._others]

    @property
    def learning_rates(self) -> list[LearningRate]:
        """The optimizer's learning rate, and those of groups with their own rates."""
        return [member.learning_rate for member in (self.members[0], *self._own_rates)]

    def add_paths(self, parameters: Sequence[tuple[str, Variable]]) -> None:
        """Match parameters by these paths too: one that was part of another module before may have
        the name that it has there."""
        for path, v in parameters if self._patterns else ():
            if path not in self._names_of(v):
                self._paths[id(v)] = ref(v), {*self._names_of(v), path}

    def check(self, parameters: Sequence[tuple[str, Variable]]) -> None:
        """Raise OptionError unless each pattern matches one of the parameters."""
        for pattern in self._patterns:
            if not any(_is_match(self._names_of(v), pattern) for _, v in parameters):
                paths = ", ".join([path for path, _ in parameters])
                raise OptionError(
                    f"groups: no parameter matches {pattern!r}; the names are {paths}"
                )

    def index(self, v: Variable) -> int:
        """Return the number of a variable's group, the first one whose pattern matches it."""
        if not self._patterns:
            return 0
        names = frozenset(self._names_of(v))
        if names not in self._index_of:
            matches = (i for i, x in enumerate(self._patterns, 1) if _is_match(names, x))
            self._index_of[names] = next(matches, 0)
        return self._index_of[names]

    def _names_of(self, v: Variable) -> Collection[str]:
        """Return the name of a variable, and its paths."""
        known, paths = self._paths.get(id(v), (None, ()))
        return {v.name, *paths} if known is not None and known() is v else (v.name,)


def _is_match(names: Collection[str], pattern: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in names)


def _member(optimizer: GroupRule, pattern: str, settings: Mapping[str, Any]) -> GroupRule:
    """Return the optimizer of a group. Raises OptionError for settings that a group cannot have."""
    if not isinstance(settings, Mapping):
        raise OptionError(
            f"groups: the settings of {pattern!r} are a dictionary, was given {settings!r}; write "
            f"{{{pattern!r}: {{'learning_rate': 0.1}}}}"
        )
    allowed = [f.name for f in fields(optimizer) if f.name not in OF_ALL]
    if unknown := sorted(set(settings) - set(allowed)):
        raise OptionError(
            f"groups: {pattern!r} sets {', '.join(unknown)}; the settings of a group of "
            f"{type(optimizer).__name__} are {', '.join(allowed)}"
        )
    return replace(optimizer, clip_value=None, clip_norm=None, groups={}, **settings)
