"""ONNX's operators in magmath's functions.

`OPERATORS` maps the name of an operator to a function of a call and its operands. Their sources are
the definitions of versions 7 to 25 at onnx.ai.
"""

from __future__ import annotations

from magmath.interop.onnx_call import Operator
from magmath.interop.onnx_control_flow import CONTROL_FLOW
from magmath.interop.onnx_elementwise import ELEMENTWISE
from magmath.interop.onnx_layers import LAYERS
from magmath.interop.onnx_recurrent import RECURRENT
from magmath.interop.onnx_reductions import REDUCTIONS
from magmath.interop.onnx_resize import RESIZE
from magmath.interop.onnx_shapes import SHAPES

OPERATORS: dict[str, Operator] = {
    **ELEMENTWISE,
    **SHAPES,
    **REDUCTIONS,
    **LAYERS,
    **RESIZE,
    **RECURRENT,
    **CONTROL_FLOW,
}
