"""Strategies for training on several workers."""

from magmath.parallel.compiled_step import CompiledStep
from magmath.parallel.data_parallel import DataParallel
from magmath.parallel.names import STRATEGIES, as_strategy
from magmath.parallel.per_layer import Auto, Hybrid, ModelParallel
from magmath.parallel.replicas import Replicas
from magmath.parallel.strategy import Strategy, Training
from magmath.parallel.weight_averaging import WeightAveraging

__all__ = [
    "STRATEGIES",
    "Auto",
    "CompiledStep",
    "DataParallel",
    "Hybrid",
    "ModelParallel",
    "Replicas",
    "Strategy",
    "Training",
    "WeightAveraging",
    "as_strategy",
]
