"""A pytest plug-in: the tests run in a pool of workers, with arrays created in random layouts.

It does not depend on the suite: it wraps the functions of the namespace that create arrays. The
layouts of a test are the same whenever the test is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from random import Random
from typing import Any

import pytest
from hypothesis.control import current_build_context, currently_in_test_context

import magmath as mm
from magmath.layout import Layout, Mesh

CREATORS = (
    "arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones "
    "ones_like tril triu zeros zeros_like"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0)
    parser.addoption("--launcher", default="threads")
    parser.addoption("--layouts", default="default")


def pytest_configure(config: pytest.Config) -> None:
    mm.init(config.getoption("workers"), launcher=config.getoption("launcher"), threads=1)
    LAYOUTS.are_random = config.getoption("layouts") == "random"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    where = f"{mm.pool()}, {LAYOUTS.moved} arrays in random layouts"
    passed, failed = (len(terminalreporter.stats.get(kind, [])) for kind in ("passed", "failed"))
    known = len(terminalreporter.stats.get("xfailed", []))
    share = passed / max(passed + failed + known, 1)
    terminalreporter.line(f"{share:.2%} pass, {known} failures are known ({where})")


def pytest_unconfigure(config: pytest.Config) -> None:
    mm.shutdown()


class Layouts:
    """Whether arrays are put into random layouts; the numbers start over with each example."""

    def __init__(self) -> None:
        self.are_random = False
        self.moved = 0
        self.test = ""
        self._example: object = None
        self._random = Random()

    def next(self) -> Random:
        """The generator of the current example."""
        example = current_build_context().data if currently_in_test_context() else self.test
        if example is not self._example:
            self._example, self._random = example, Random(self.test)
        return self._random


LAYOUTS = Layouts()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    LAYOUTS.test = item.nodeid
    return (yield)


def _laid_out(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with its results in random layouts; an array that it is given stays."""

    @wraps(function)
    def create(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if not LAYOUTS.are_random or any(result is argument for argument in args):
            return result
        return tuple(map(_moved, result)) if isinstance(result, tuple) else _moved(result)

    return create


def _moved(array: mm.Array) -> mm.Array:
    LAYOUTS.moved += 1
    layout = random_layout(LAYOUTS.next(), array.shape, mm.pool().mesh)
    return array.redistribute(layout)


# Now, since a suite may take the functions out of the namespace before pytest is configured.
for _name in CREATORS.split():
    setattr(mm, _name, _laid_out(getattr(mm, _name)))


def random_layout(random: Random, shape: tuple[int, ...], mesh: Mesh) -> Layout:
    """A layout of one of the forms that users can write, over the workers of the mesh."""
    rules = [Layout.replicated(), Layout.on(random.choice(mesh.workers))]
    if shape:
        axis = random.randrange(len(shape))
        cuts = sorted(random.randint(0, shape[axis]) for _ in range(mesh.size - 1))
        rules += [
            Layout.split(axis),
            Layout.split(axis, (0, *cuts, shape[axis])),
            Layout.cyclic(axis, random.randint(1, 3)),
            Layout.blocks(_boxes(random, shape, mesh)),
        ]
    if len(shape) > 1 and mesh.size % 2 == 0:
        rules.append(Layout.grid((2, mesh.size // 2)))
    return random.choice(rules).bind(shape, mesh)


def _boxes(random: Random, shape: tuple[int, ...], mesh: Mesh) -> list[Any]:
    """The array cut in two a few times, the parts on any workers."""
    boxes = [tuple((0, extent) for extent in shape)]
    for _ in range(random.randint(0, 4)):
        box = boxes.pop(random.randrange(len(boxes)))
        axis = random.randrange(len(shape))
        low, high = box[axis]
        cut = random.randint(low, high)
        boxes += [(*box[:axis], part, *box[axis + 1 :]) for part in ((low, cut), (cut, high))]
    return [(box, random.choice(mesh.workers)) for box in boxes]
