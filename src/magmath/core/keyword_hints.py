"""Errors about unknown keyword arguments that name magmath's own parameter.

Python reports an unknown argument before any line of the function runs. Classes with this
metaclass, and functions with this decorator, complete its message: `Adam(lr=0.1)` names
`learning_rate`, and `Conv2d(3, 16, 3)` the arguments that are given by position.
"""

from __future__ import annotations

import re
from abc import ABCMeta
from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from inspect import Signature, signature
from typing import Any, TypeVar, final

from magmath.core.foreign_keywords import KEYWORDS

_UNKNOWN = re.compile(r"got an unexpected keyword argument '(\w+)'")
_WRONG_NUMBER = re.compile(
    r"takes .* positional arguments? but \d+ (were|was) given|got multiple values for argument"
    r"|missing \d+ required positional arguments?: (?P<missing>.*)"
)
F = TypeVar("F", bound=Callable[..., Any])


@final
class KeywordHints(ABCMeta):
    """The metaclass of classes whose constructor has hints about names of other libraries."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().__call__(*args, **kwargs)
        except TypeError as error:
            complete(error, cls, kwargs)
            raise

    @property
    def __signature__(cls) -> Signature:
        """The signature of the constructor, for help and editors."""
        init = signature(cls.__init__)
        return init.replace(parameters=list(init.parameters.values())[1:])


def keyword_hints(function: F) -> F:
    """Return a function whose errors have hints about names of other libraries."""

    @wraps(function)
    def hinting(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            complete(error, hinting, kwargs, _constructor(hinting, args))
            raise

    del hinting.__wrapped__
    hinting.__signature__ = signature(function)  # type: ignore[attr-defined]
    return hinting  # type: ignore[return-value]


def takes_options_of(source: Callable[..., Any]) -> Callable[[F], F]:
    """Return a decorator of functions that pass their `**options` on to `source`: it gives them the
    signature with the options' names and defaults, for help, editors and errors."""
    options = [x for x in signature(source).parameters.values() if x.kind is x.KEYWORD_ONLY]

    def with_options(function: F) -> F:
        function_signature = signature(function)
        first = [x for x in function_signature.parameters.values() if x.kind is not x.VAR_KEYWORD]
        known = {x.name for x in first} | {x.name for x in options}
        name = function.__qualname__

        @wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            for keyword in kwargs:
                if keyword not in known:
                    error = TypeError(f"{name}() got an unexpected keyword argument {keyword!r}")
                    complete(error, checked, kwargs, _constructor(checked, args))
                    raise error
            return function(*args, **kwargs)

        del checked.__wrapped__
        checked.__signature__ = function_signature.replace(parameters=[*first, *options])  # type: ignore[attr-defined]
        return checked  # type: ignore[return-value]

    return with_options


def _constructor(function: Callable[..., Any], args: tuple[Any, ...]) -> type | None:
    """Return the class whose method the function is, as a call with these arguments shows."""
    owner = type(args[0]) if args else None
    return owner if getattr(owner, function.__name__, None) is function else None


def complete(
    error: TypeError,
    called: Callable[..., Any],
    keywords: dict[str, Any],
    constructor: type | None = None,
) -> None:
    """Complete the message of an error about an unknown argument of `called`, or about the number
    of those by position, if it is one.

    constructor  the class of a method, whose constructor may take the argument
    """
    wrong_number = _WRONG_NUMBER.search(str(error))
    if wrong_number is not None:
        _name_positions(error, called, wrong_number["missing"])
        return
    match = _UNKNOWN.search(str(error))
    if match is None or match[1] not in keywords:
        return
    parameters = [name for name in signature(called).parameters if name != "self"]
    name = match[1]
    if name in parameters:  # a function that `called` calls does not take it
        return
    applicable = [x for x in KEYWORDS.get(name, ()) if x in parameters or " " in x]
    if applicable:
        hint = f"write {applicable[0]}=…" if applicable[0] in parameters else applicable[0]
    elif constructor is not None and name in signature(constructor).parameters:
        hint = f"give it to the constructor: {constructor.__name__}(…, {name}=…)"
    elif name not in KEYWORDS and (close := get_close_matches(name, parameters, n=1, cutoff=0.8)):
        hint = f"did you mean {close[0]}=…?"
    else:
        hint = f"it takes {', '.join(parameters) or 'no arguments'}"
    error.args = (f"{called.__name__}() got an unexpected keyword argument {name!r}; {hint}",)


def _name_positions(
    error: TypeError, called: Callable[..., Any], missing: str | None = None
) -> None:
    """Name the arguments of `called` by position and by name in an error about their number."""
    code = called.__init__ if isinstance(called, type) else called  # type: ignore[misc]
    if not str(error).startswith(f"{code.__qualname__}()"):
        return  # a function that `called` calls takes fewer
    parameters = [x for x in signature(called).parameters.values() if x.name != "self"]
    first = [x.name for x in parameters if x.kind in (x.POSITIONAL_ONLY, x.POSITIONAL_OR_KEYWORD)]
    keyword_only = [x.name for x in parameters if x.kind is x.KEYWORD_ONLY]
    message = f"{called.__name__}: lacks {missing}; it " if missing else f"{called.__name__}: "
    message += f"takes {', '.join(first) or 'no argument'} by position"
    if keyword_only:
        message += f", and by name {', '.join(keyword_only)}"
    if "channels" in first or "units" in first:
        message += "; the number of inputs follows from the first call"
    elif first[:1] in (["arrays"], ["tup"]):
        message += f"; the arrays are one list, as in {called.__name__}([x, y])"
    elif "variables" in first:
        message += "; the variables are a list, such as module.parameters()"
    elif "axes" in first:
        message += "; several axes are one tuple, such as (1, 0)"
    error.args = (message,)
