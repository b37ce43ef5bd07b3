"""ONNX's operators in magmath's functions.

`OPERATORS` maps the name of an operator to a function of a call and its operands. Their sources are
the definitions of versions 7 to 25 at onnx.ai.
"""

from __future__ import annotations

from magmath.interop.reading_onnx.onnx_call import Operator
from magmath.interop.reading_onnx.onnx_control_flow import CONTROL_FLOW
from magmath.interop.reading_onnx.onnx_convolution import CONVOLUTION
from magmath.interop.reading_onnx.onnx_elementwise import ELEMENTWISE
from magmath.interop.reading_onnx.onnx_normalization import NORMALIZATION
from magmath.interop.reading_onnx.onnx_random import RANDOM
from magmath.interop.reading_onnx.onnx_recurrent import RECURRENT
from magmath.interop.reading_onnx.onnx_reductions import REDUCTIONS
from magmath.interop.reading_onnx.onnx_resize import RESIZE
from magmath.interop.reading_onnx.onnx_shapes import SHAPES

OPERATORS: dict[str, Operator] = {
    **ELEMENTWISE,
    **SHAPES,
    **REDUCTIONS,
    **CONVOLUTION,
    **NORMALIZATION,
    **RANDOM,
    **RESIZE,
    **RECURRENT,
    **CONTROL_FLOW,
}
