"""magmath's operations as nodes of ONNX (operator set 18).

`EMITTERS` maps the name of an operation to its emitter.
"""

from __future__ import annotations

from magmath.interop.writing_onnx.emit_convolution import CONVOLUTION
from magmath.interop.writing_onnx.emit_elementwise import ELEMENTWISE
from magmath.interop.writing_onnx.emit_reductions import REDUCTIONS
from magmath.interop.writing_onnx.emit_shapes import SHAPES
from magmath.interop.writing_onnx.onnx_emitter import Emitter

EMITTERS: dict[str, Emitter] = {**ELEMENTWISE, **SHAPES, **REDUCTIONS, **CONVOLUTION}
