"""Cases for the native forms of operations, all of one shape, so that they form one program."""

from __future__ import annotations

import torch

from magmath.core.dtypes import DTYPES, DType
from operation_table import Case, Draws, Shape

SHAPE = (3, 5)
CONVERTED = ("bool", "int64", "uint8", "float32", "float64")


class OneShape(Draws):
    """Draws that always fall the same: everything has one shape."""

    def shape(self, least: int = 0, most: int = 3, extents: tuple[int, int] = (0, 6)) -> Shape:
        return SHAPE

    def stretched(self, shape: Shape) -> Shape:
        return shape if next(self.made) % 3 else shape[-1:]


def narrow_indices() -> list[tuple[int, torch.Tensor]]:
    """Counts of rows that the types of their indices cannot hold, and such indices."""
    small, byte = torch.tensor([-1, 127, -128, 0, 5]), torch.tensor([0, 255, 128, 127])
    return [
        *[(count, small.to(torch.int8)) for count in (128, 200, 256, 300)],
        *[(count, byte.to(torch.uint8)) for count in (256, 300)],
    ]


def structured(draws: Draws) -> list[tuple[str, Case]]:
    """Cases of the operations that are written with loops of their own."""
    x, y = draws.numbers(SHAPE), draws.numbers(SHAPE, "factor")
    rows, long = torch.tensor([2, 0, 1, 2]), draws.numbers((300, 2))
    element = draws.dtype
    drawn = (torch.tensor(5), torch.tensor(8))
    return [
        *[
            (name, Case((y,), {"axis": axis, "keepdims": keepdims}))
            for name in ("sum", "prod", "max", "min", "any", "all")
            for axis, keepdims in (((0,), False), ((1,), True), ((0, 1), False), ((), False))
        ],
        ("reshape", Case((x,), {"shape": (5, 3)})),
        ("permute_dims", Case((x,), {"axes": (1, 0)})),
        ("broadcast_to", Case((x[1],), {"shape": SHAPE})),
        ("slice", Case((x,), {"bounds": ((0, 3, 1), (1, 4, 1))})),
        ("slice", Case((x,), {"bounds": ((2, -1, -2), (0, 5, 3))})),
        ("set_slice", Case((x, y[:2, :3]), {"bounds": ((1, 3, 1), (4, -1, -2))})),
        ("set_slice", Case((x, y[0, :1]), {"bounds": ((0, 3, 2), (1, 4, 1))})),
        ("concat", Case((x, y, x), {"axis": 0})),
        ("concat", Case((x, y[:, :2]), {"axis": 1})),
        ("take", Case((x, rows), {"axes": (0,), "at": 0})),
        ("take", Case((x, rows - 3), {"axes": (1,), "at": 1})),
        *[
            ("take", Case((long[:count], index), {"axes": (0,), "at": 0}))
            for count, index in narrow_indices()
        ],
        (
            "dynamic_slice",
            Case((x.reshape(-1), torch.tensor(3)), {"axes": (0,), "extents": (4,), "steps": (1,)}),
        ),
        (
            "dynamic_slice",
            Case(
                (x, torch.tensor(1), torch.tensor(4)),
                {"axes": (0, 1), "extents": (None, 3), "steps": (1, -2)},
            ),
        ),
        (
            "dynamic_update_slice",
            Case(
                (x, y[0, :3], torch.tensor(-1), torch.tensor(4)),
                {"axes": (0, 1), "extents": (None, 3), "steps": (1, -2)},
            ),
        ),
        (
            "dynamic_update_slice",
            Case((x, y[:, :2], torch.tensor(3)), {"axes": (1,), "extents": (2,), "steps": (1,)}),
        ),
        ("full", Case((x[0, 0],), {"shape": SHAPE, "dtype": element})),
        ("iota", Case((), {"shape": SHAPE, "dtype": element, "axis": 1})),
        ("random_uniform", Case(drawn, {"shape": SHAPE, "dtype": element})),
        *[("astype", Case((y,), {"dtype": DTYPES[name]})) for name in CONVERTED],
        *(_products(x, y, element) if element.kind == "float" else ()),
    ]


def _products(x: torch.Tensor, y: torch.Tensor, dtype: DType) -> list[tuple[str, Case]]:
    """Products of matrices and vectors in all orders, also of one array with itself."""
    operands = {
        "ab,cb->ac": (x, y),
        "ab,bc->ac": (x, y.T.contiguous()),
        "ba,bc->ac": (x, y),
        "ba,cb->ac": (x, y.T.contiguous()),
        "ab,b->a": (x, y[0]),
        "b,ab->a": (y[0], x),
        "b,ba->a": (y[:, 0], x),
        "a,a->": (x[0], y[0]),
    }
    cases = [*operands.items(), ("a,a->", (x[1], x[1]))]
    return [
        ("contract", Case(given, {"subscripts": subscripts, "dtype": dtype}))
        for subscripts, given in cases
    ]
