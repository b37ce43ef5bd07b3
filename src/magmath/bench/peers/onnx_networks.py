"""ONNX Runtime and OpenVINO run the convolutional networks, as models that onnx builds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from magmath.bench.peers.network_layers import (
    Activation,
    Conv,
    Dense,
    LocalNorm,
    Norm,
    Operations,
    Pooling,
    Residual,
    forward,
)
from magmath.bench.peers.network_problem import NetworkProblem
from magmath.bench.peers.service import Contestant, core_count
from magmath.bench.peers.training import PeerTrainer, TrainingContestant

OPSET = 17
IR_VERSION = 9


def onnxruntime() -> Contestant:
    """ONNX Runtime on the processor, with all optimizations of graphs."""
    import onnxruntime as runtime

    return TrainingContestant(
        {"onnxruntime": runtime.__version__, "onnx": onnx.__version__},
        NetworkProblem.of,
        lambda problem: {
            "all optimizations": lambda: OnnxInference(problem, _onnxruntime(problem))
        },
    )


def openvino() -> Contestant:
    """OpenVINO on the processor, tuned for latency, in float32."""
    import openvino as runtime

    return TrainingContestant(
        {"openvino": runtime.__version__, "onnx": onnx.__version__},
        NetworkProblem.of,
        lambda problem: {"latency": lambda: OnnxInference(problem, _openvino(problem))},
    )


def _onnxruntime(problem: NetworkProblem) -> Callable[[Any], Any]:
    import onnxruntime as runtime

    options = runtime.SessionOptions()
    options.intra_op_num_threads = core_count()
    options.inter_op_num_threads = 1
    model = network_model(problem).SerializeToString()
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda images: session.run(None, {"images": images})[0]


def _openvino(problem: NetworkProblem) -> Callable[[Any], Any]:
    import openvino as runtime

    core = runtime.Core()
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": core_count(),
    }
    model = core.read_model(network_model(problem).SerializeToString())
    compiled = core.compile_model(model, "CPU", settings)
    request = compiled.create_infer_request()
    return lambda images: request.infer({"images": images})[compiled.output(0)]


@final
class OnnxInference(PeerTrainer):
    """Outputs of the batch, by a function of the images."""

    def __init__(self, problem: NetworkProblem, outputs: Callable[[Any], Any]) -> None:
        self.images, self.labels = problem.data()
        self._outputs = outputs

    def reset(self) -> None:
        """Do nothing: inference changes no weights."""

    def train(self, epochs: int) -> None:
        for _ in range(epochs):
            self._outputs(self.images)

    def loss(self) -> float:
        outputs = np.asarray(self._outputs(self.images), np.float64)
        shifted = outputs - outputs.max(1, keepdims=True)
        logits = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
        return float(-logits[np.arange(len(self.labels)), self.labels].mean())


@final
class OnnxOperations(Operations):
    """Operations on names of values, which add the nodes of a graph."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, array: Any) -> str:
        """Add a constant and return its name."""
        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def _node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"value{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def _activate(self, x: str, activation: Activation) -> str:
        match activation:
            case "none":
                return x
            case "relu":
                return self._node("Relu", x)
            case "relu6":
                bounds = [self.constant(np.float32(bound)) for bound in (0, 6)]
                return self._node("Clip", x, *bounds)

    def conv(self, x: Any, weight: Any, bias: Any, layer: Conv) -> Any:
        inputs = [self.constant(array) for array in (weight, bias) if array is not None]
        strides, pads = [layer.stride] * 2, [*layer.padding, *layer.padding]
        y = self._node(
            "Conv", x, *inputs, strides=strides, pads=pads, kernel_shape=layer.kernel,
            group=layer.groups,
        )  # fmt: skip
        return self._activate(y, layer.activation)

    def norm(self, x: Any, scale: Any, shift: Any, layer: Norm) -> Any:
        arrays = (scale, shift, np.zeros_like(scale), np.ones_like(scale))
        inputs = map(self.constant, arrays)
        y = self._node("BatchNormalization", x, *inputs, epsilon=layer.epsilon)
        return self._activate(y, layer.activation)

    def pool(self, x: Any, layer: Pooling) -> Any:
        more = {} if layer.kind == "max" else {"count_include_pad": 1}
        return self._node(
            "MaxPool" if layer.kind == "max" else "AveragePool",
            x,
            kernel_shape=[layer.kernel] * 2,
            strides=[layer.stride] * 2,
            pads=[layer.padding] * 4,
            ceil_mode=int(layer.ceil),
            **more,
        )

    def local_norm(self, x: Any, layer: LocalNorm) -> Any:
        return self._node("LRN", x, size=layer.size, alpha=1e-4, beta=0.75, bias=1.0)

    def flatten(self, x: Any) -> Any:
        return self._node("Flatten", x)

    def global_pool(self, x: Any) -> Any:
        return self._node("Flatten", self._node("GlobalAveragePool", x))

    def dense(self, x: Any, weight: Any, bias: Any, layer: Dense) -> Any:
        y = self._node("Gemm", x, self.constant(weight), self.constant(bias))
        return self._activate(y, layer.activation)

    def join(self, xs: list[Any]) -> Any:
        return self._node("Concat", *xs, axis=1)

    def add(self, x: Any, y: Any, layer: Residual) -> Any:
        return self._activate(self._node("Add", x, y), layer.activation)


def network_model(problem: NetworkProblem) -> Any:
    """Return the problem's network in evaluation mode as an ONNX model."""
    ops = OnnxOperations()
    output = forward(problem.layers, "images", iter(problem.weights()), ops)
    shape = [problem.batch, 3, problem.size, problem.size]
    graph = helper.make_graph(
        ops.nodes,
        problem.network,
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, shape)],
        [
            helper.make_tensor_value_info(
                output, TensorProto.FLOAT, [problem.batch, problem.classes]
            )
        ],
        ops.constants,
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
