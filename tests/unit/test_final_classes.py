"""Classes are abstract or final: no class is a base by accident."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src/magmath"
OPEN_FILES = {"errors.py": "users may derive exceptions of their own"}
CONCRETE_BASES = {
    "api/count_distributions.py": ["CountDistributions"],
    "api/distributions.py": ["Distributions"],
    "api/gamma_distributions.py": ["GammaDistributions"],
    "arrays/array.py": ["Array"],
    "arrays/lazy_array.py": ["LazyArray"],
    "arrays/number_protocols.py": ["NumberProtocols"],
    "arrays/protocols/interchange_protocols.py": ["InterchangeProtocols"],
    "arrays/protocols/methods.py": ["ArrayMethods"],
    "arrays/protocols/operators.py": ["Operators"],
    "arrays/variables/variable.py": ["Variable"],
    "bench/contestants/elementwise.py": ["MagmathCompiled", "MagmathElementwise"],
    "bench/contestants/networks.py": ["CompiledNetwork"],
    "bench/peers/jax_networks.py": ["_Network"],
    "bench/peers/repeated.py": ["RepeatedContestant"],
    "bench/peers/torch_networks.py": ["TorchOperations", "_Network"],
    "diagnostics/explanation.py": ["Summed"],
    "engine/array_handle.py": ["ArrayHandle"],
    "engine/traces/drawn_streams.py": ["StreamPosition"],
    "engine/traces/tracing.py": ["Scope"],
    "executor/fastest_selector.py": ["FastestSelector"],
    "graph/arithmetic.py": ["Arithmetic"],
    "graph/provenance/operand_references.py": ["OperandReference", "ProvenanceRecord"],
    "interop/named_parts.py": ["NamedParts"],
    "kernels/channel_sums_vectors.py": ["_Sums"],
    "kernels/conv/depthwise_rows.py": ["_Rows"],
    "kernels/dispatch/tuner.py": ["Tuner"],  # tests replace its choice
    "nn/layers/convolution.py": ["_Conv", "_ConvTranspose"],
    "nn/layers/pooling.py": ["_AdaptiveAvgPool", "_AdaptiveMaxPool", "_AvgPool", "_MaxPool"],
    "nn/layers/resampling.py": ["_Pad"],
    "nn/module.py": ["Module"],
    "optim/adam.py": ["_Moments"],
    "optim/schedules.py": ["Formula"],
    "program/instructions.py": ["_SlotAccess"],
    "train/callbacks.py": ["BestWeights", "Callback"],
    "train/listeners.py": ["Listener"],
}
"""Classes that others extend although they are complete themselves, or have no abstract method."""


def _is_marked(node: ast.ClassDef) -> bool:
    """Return True for a final class, and for one that is abstract."""
    bases = {ast.unparse(base).partition("[")[0] for base in node.bases}
    methods = [x for x in node.body if isinstance(x, ast.FunctionDef)]
    decorators = [d for x in (node, *methods) for d in x.decorator_list]
    names = {ast.unparse(d) for d in decorators}
    return not bases.isdisjoint({"ABC", "Protocol"}) or not names.isdisjoint(
        {"final", "abstractmethod"}
    )


def test_every_class_is_abstract_or_final_or_listed() -> None:
    unmarked: dict[str, list[str]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if name in OPEN_FILES:
            continue
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        result = [x.name for x in nodes if isinstance(x, ast.ClassDef) and not _is_marked(x)]
        if result:
            unmarked[name] = sorted(result)
    assert unmarked == CONCRETE_BASES
