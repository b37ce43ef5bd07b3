"""The one-dimensional transforms of Winograd's algorithms for 3×3 and 5×5 filters.

A tile of m×m outputs is y = Aᵀ[(G g Gᵀ) ⊙ (Bᵀ d B)]A for a filter g and the (m+2)×(m+2) inputs d
that it covers (Lavin and Gray, CVPR 2016, eq. 8). The polynomials are evaluated at 0, ±1, ∞, and
for m = 4 also at ½ and -2. These two points have about half the error of ±2, and their product is
-1, so that a transform of the inputs needs 14 additions where ±2 needs more. The normalization is
in G. F(2×2, 5×5) has the same points as F(4×4, 3×3), and so the same transform of the inputs.

With stride 2, the inputs of even positions have the taps g[0] and g[2], those of odd positions
g[1]: y is the sum of F(m, 2) of the even inputs and F(m, 1) of the odd ones. Both are evaluated at
the same points, so that their products are added before the transform to outputs. A filter of one
tap is 0 at ∞, which leaves m + 1 and m products along a side. So F(4×4) needs 81 products for 16
outputs, where the direct sum needs 144. The gradient of the inputs exchanges inputs and outputs:
one transform of cotangents serves both parts, and each part gives every other input.

A form applies one of the matrices to a vector. Forms are written for any arithmetic, so that tests
compare them with matrices of exact fractions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, final


class TransformArithmetic(Protocol):
    """The operations of the transforms."""

    def plus(self, x: Any, y: Any) -> Any:
        """Return x + y."""

    def minus(self, x: Any, y: Any) -> Any:
        """Return x - y."""

    def scaled(self, factor: float, x: Any) -> Any:
        """Return factor · x."""

    def multiply_add(self, factor: float, x: Any, y: Any) -> Any:
        """Return factor · x + y."""


Form = Callable[[TransformArithmetic, Sequence[Any]], list[Any]]


# F(2, 3) at 0, 1, -1, ∞ -------------------------------------------------------------------------


def _inputs_2(a: TransformArithmetic, d: Sequence[Any]) -> list[Any]:
    return [a.minus(d[2], d[0]), a.plus(d[2], d[1]), a.minus(d[2], d[1]), a.minus(d[3], d[1])]


def _filters_2(a: TransformArithmetic, g: Sequence[Any]) -> list[Any]:
    outer, middle = a.scaled(0.5, a.plus(g[0], g[2])), a.scaled(0.5, g[1])
    return [a.scaled(-1.0, g[0]), a.plus(outer, middle), a.minus(outer, middle), g[2]]


def _outputs_2(a: TransformArithmetic, m: Sequence[Any]) -> list[Any]:
    return [a.plus(m[0], a.plus(m[1], m[2])), a.plus(a.minus(m[1], m[2]), m[3])]


def _cotangents_2(a: TransformArithmetic, y: Sequence[Any]) -> list[Any]:
    return [y[0], a.plus(y[0], y[1]), a.minus(y[0], y[1]), y[1]]


def _weights_2(a: TransformArithmetic, u: Sequence[Any]) -> list[Any]:
    both = a.scaled(0.5, a.plus(u[1], u[2]))
    return [a.minus(both, u[0]), a.scaled(0.5, a.minus(u[1], u[2])), a.plus(both, u[3])]


# F(4, 3) at 0, 1, -1, ½, -2, ∞ ------------------------------------------------------------------


def _inputs_4(a: TransformArithmetic, d: Sequence[Any]) -> list[Any]:
    s0, s1, s2, s3 = (a.minus(d[i + 2], d[i]) for i in range(4))
    low, high = a.multiply_add(1.5, d[2], s1), a.multiply_add(1.5, d[3], s2)
    return [
        a.minus(a.multiply_add(1.5, s1, s2), s0),
        a.plus(high, low),
        a.minus(high, low),
        a.multiply_add(2.0, s1, s2),
        a.multiply_add(-0.5, s1, s2),
        a.minus(a.multiply_add(1.5, s2, s3), s1),
    ]


def _filters_4(a: TransformArithmetic, g: Sequence[Any]) -> list[Any]:
    outer, middle = a.scaled(1 / 3, a.plus(g[0], g[2])), a.scaled(1 / 3, g[1])
    at_half = a.multiply_add(0.25, g[2], a.multiply_add(0.5, g[1], g[0]))
    at_minus_2 = a.multiply_add(4.0, g[2], a.multiply_add(-2.0, g[1], g[0]))
    return [
        g[0],
        a.plus(outer, middle),
        a.minus(middle, outer),
        a.scaled(-16 / 15, at_half),
        a.scaled(1 / 15, at_minus_2),
        g[2],
    ]


def _outputs_4(a: TransformArithmetic, m: Sequence[Any]) -> list[Any]:
    even, odd = a.plus(m[1], m[2]), a.minus(m[1], m[2])
    return [
        a.plus(a.plus(m[0], even), a.plus(m[3], m[4])),
        a.multiply_add(-2.0, m[4], a.multiply_add(0.5, m[3], odd)),
        a.multiply_add(4.0, m[4], a.multiply_add(0.25, m[3], even)),
        a.plus(a.multiply_add(-8.0, m[4], a.multiply_add(0.125, m[3], odd)), m[5]),
    ]


def _cotangents_4(a: TransformArithmetic, y: Sequence[Any]) -> list[Any]:
    even, odd = a.plus(y[0], y[2]), a.plus(y[1], y[3])
    at_half = a.multiply_add(0.125, y[3], a.multiply_add(0.25, y[2], y[0]))
    at_minus_2 = a.multiply_add(-8.0, y[3], a.multiply_add(4.0, y[2], y[0]))
    return [
        y[0],
        a.plus(even, odd),
        a.minus(even, odd),
        a.multiply_add(0.5, y[1], at_half),
        a.multiply_add(-2.0, y[1], at_minus_2),
        y[3],
    ]


def _weights_4(a: TransformArithmetic, u: Sequence[Any]) -> list[Any]:
    outer = a.scaled(1 / 3, a.minus(u[1], u[2]))
    middle = a.scaled(1 / 3, a.plus(u[1], u[2]))
    first = a.multiply_add(1 / 15, u[4], a.multiply_add(-16 / 15, u[3], a.plus(u[0], outer)))
    second = a.multiply_add(-2 / 15, u[4], a.multiply_add(-8 / 15, u[3], middle))
    third = a.multiply_add(4 / 15, u[4], a.multiply_add(-4 / 15, u[3], a.plus(outer, u[5])))
    return [first, second, third]


# F(2, 5) at the same points ---------------------------------------------------------------------


def _filters_2_5(a: TransformArithmetic, g: Sequence[Any]) -> list[Any]:
    outer, middle = a.plus(g[0], a.plus(g[2], g[4])), a.plus(g[1], g[3])
    third, at_half, at_minus_2 = a.scaled(1 / 3, middle), g[4], g[4]
    for tap in reversed(g[:4]):
        at_half = a.multiply_add(0.5, at_half, tap)
        at_minus_2 = a.multiply_add(-2.0, at_minus_2, tap)
    return [
        g[0],
        a.multiply_add(1 / 3, outer, third),
        a.multiply_add(-1 / 3, outer, third),
        a.scaled(-16 / 15, at_half),
        a.scaled(1 / 15, at_minus_2),
        g[4],
    ]


def _outputs_2_5(a: TransformArithmetic, m: Sequence[Any]) -> list[Any]:
    return [
        a.plus(a.plus(m[0], a.plus(m[1], m[2])), a.plus(m[3], m[4])),
        a.multiply_add(-2.0, m[4], a.multiply_add(0.5, m[3], a.plus(a.minus(m[1], m[2]), m[5]))),
    ]


def _cotangents_2_5(a: TransformArithmetic, y: Sequence[Any]) -> list[Any]:
    both = [a.plus(y[0], y[1]), a.minus(y[0], y[1])]
    return [y[0], *both, *[a.multiply_add(p, y[1], y[0]) for p in (0.5, -2.0)], y[1]]


def _weights_2_5(a: TransformArithmetic, u: Sequence[Any]) -> list[Any]:
    even, odd = a.scaled(1 / 3, a.minus(u[1], u[2])), a.scaled(1 / 3, a.plus(u[1], u[2]))
    half, minus_2 = a.scaled(-16 / 15, u[3]), a.scaled(1 / 15, u[4])
    sums = [a.plus(even, u[0]), odd, even, odd, a.plus(even, u[5])]
    return [
        a.multiply_add((-2.0) ** i, minus_2, a.multiply_add(0.5**i, half, x))
        for i, x in enumerate(sums)
    ]


# F(3, 2) at 0, 1, -1, ∞; without the last operand, or with one tap, F(3, 1) without ∞ ----------


def _inputs_3_2(a: TransformArithmetic, d: Sequence[Any]) -> list[Any]:
    finite = [a.minus(d[2], d[0]), a.plus(d[2], d[1]), a.minus(d[2], d[1])]
    return finite + [a.minus(last, d[1]) for last in d[3:]]


def _filters_3_2(a: TransformArithmetic, g: Sequence[Any]) -> list[Any]:
    first = a.scaled(0.5, g[0])
    if len(g) == 1:
        return [a.scaled(-1.0, g[0]), first, first]
    second = a.scaled(0.5, g[1])
    return [a.scaled(-1.0, g[0]), a.plus(first, second), a.minus(first, second), g[1]]


def _outputs_3_2(a: TransformArithmetic, m: Sequence[Any]) -> list[Any]:
    even = a.plus(m[1], m[2])
    last = a.plus(even, m[3]) if len(m) == 4 else even
    return [a.plus(m[0], even), a.minus(m[1], m[2]), last]


def _cotangents_3_2(a: TransformArithmetic, y: Sequence[Any]) -> list[Any]:
    even = a.plus(y[0], y[2])
    return [y[0], a.plus(even, y[1]), a.minus(even, y[1]), y[2]]


def _weights_3_2(a: TransformArithmetic, u: Sequence[Any]) -> list[Any]:
    first = a.minus(a.scaled(0.5, a.plus(u[1], u[2])), u[0])
    return [first] + [a.multiply_add(0.5, a.minus(u[1], u[2]), last) for last in u[3:]]


# F(4, 2) at 0, 1, -1, -2, ∞, likewise -----------------------------------------------------------


def _inputs_4_2(a: TransformArithmetic, d: Sequence[Any]) -> list[Any]:
    s0, s1 = a.minus(d[2], d[0]), a.minus(d[3], d[1])
    finite = [
        a.multiply_add(2.0, s0, s1),
        a.multiply_add(3.0, a.plus(d[1], d[2]), s1),
        a.plus(s1, a.minus(d[2], d[1])),
        s1,
    ]
    return finite + [a.multiply_add(2.0, s1, a.minus(last, d[2])) for last in d[4:]]


def _filters_4_2(a: TransformArithmetic, g: Sequence[Any]) -> list[Any]:
    half, sixth = a.scaled(0.5, g[0]), a.scaled(1 / 6, g[0])
    if len(g) == 1:
        return [a.scaled(-0.5, g[0]), sixth, half, a.scaled(-1 / 6, g[0])]
    return [
        a.scaled(-0.5, g[0]),
        a.multiply_add(1 / 6, g[1], sixth),
        a.multiply_add(-0.5, g[1], half),
        a.multiply_add(1 / 3, g[1], a.scaled(-1 / 6, g[0])),
        g[1],
    ]


def _outputs_4_2(a: TransformArithmetic, m: Sequence[Any]) -> list[Any]:
    even, odd = a.plus(m[1], m[2]), a.minus(m[1], m[2])
    last = a.multiply_add(-8.0, m[3], odd)
    return [
        a.plus(a.plus(m[0], even), m[3]),
        a.multiply_add(-2.0, m[3], odd),
        a.multiply_add(4.0, m[3], even),
        a.plus(last, m[4]) if len(m) == 5 else last,
    ]


def _cotangents_4_2(a: TransformArithmetic, y: Sequence[Any]) -> list[Any]:
    even, odd = a.plus(y[0], y[2]), a.plus(y[1], y[3])
    at_minus_2 = a.multiply_add(-2.0, a.multiply_add(4.0, y[3], y[1]), y[0])
    return [
        y[0],
        a.plus(even, odd),
        a.minus(even, odd),
        a.multiply_add(4.0, y[2], at_minus_2),
        y[3],
    ]


def _weights_4_2(a: TransformArithmetic, u: Sequence[Any]) -> list[Any]:
    first = a.multiply_add(1 / 6, a.minus(u[1], u[3]), a.scaled(0.5, a.minus(u[2], u[0])))
    second = [
        a.multiply_add(1 / 3, u[3], a.multiply_add(-0.5, u[2], a.multiply_add(1 / 6, u[1], last)))
        for last in u[4:]
    ]
    return [first, *second]


@final
@dataclass(frozen=True)
class Forms:
    """The one-dimensional transforms of one algorithm, with the field's names of their matrices.

    inputs Bᵀ, filters G, outputs Aᵀ; for the gradient of the filter, cotangents A and weights Gᵀ.
    """

    inputs: Form
    filters: Form
    outputs: Form
    cotangents: Form | None = None
    weights: Form | None = None


F_2_3: Final = Forms(_inputs_2, _filters_2, _outputs_2, _cotangents_2, _weights_2)
F_4_3: Final = Forms(_inputs_4, _filters_4, _outputs_4, _cotangents_4, _weights_4)
F_2_5: Final = Forms(_inputs_4, _filters_2_5, _outputs_2_5, _cotangents_2_5, _weights_2_5)
F_3_2: Final = Forms(_inputs_3_2, _filters_3_2, _outputs_3_2, _cotangents_3_2, _weights_3_2)
F_4_2: Final = Forms(_inputs_4_2, _filters_4_2, _outputs_4_2, _cotangents_4_2, _weights_4_2)
"""The transforms of F(m, r): m outputs of r taps."""


def strided(two_taps: Forms, tile: int) -> Forms:
    """Return the transforms of a convolution of stride 2: of the even inputs, then of the odd ones,
    whose products have the points of the even ones except for ∞."""
    inputs, filters, weights = two_taps.inputs, two_taps.filters, two_taps.weights
    assert weights is not None

    def strided_weights(a: TransformArithmetic, u: Sequence[Any]) -> list[Any]:
        first, last = weights(a, u[: tile + 1])
        return [first, *weights(a, u[tile + 1 :]), last]

    return Forms(
        lambda a, d: inputs(a, d[::2]) + inputs(a, d[1::2]),
        lambda a, g: filters(a, g[::2]) + filters(a, g[1::2]),
        two_taps.outputs,
        two_taps.cotangents,
        strided_weights,
    )


def transposed(two_taps: Forms, tile: int) -> Forms:
    """Return the transforms of the gradient of the inputs of stride 2, with turned filters.

    The outputs are the inputs of the convolution from an odd position on: each one of the odd
    positions precedes one of the even positions.
    """

    def outputs(a: TransformArithmetic, m: Sequence[Any]) -> list[Any]:
        even, odd = two_taps.outputs(a, m[: tile + 1]), two_taps.outputs(a, m[tile + 1 :])
        return [x for pair in zip(odd, even, strict=True) for x in pair]

    return Forms(two_taps.inputs, strided(two_taps, tile).filters, outputs)
