"""Parallel training: strategies, network plans for machines, and their simulation."""

from magmath.parallel.asynchronous import Asynchronous
from magmath.parallel.compiled_step import CompiledStep
from magmath.parallel.data_parallel import DataParallel
from magmath.parallel.gradient_averaging import GradientAveraging
from magmath.parallel.per_layer import Auto, Hybrid, ModelParallel
from magmath.parallel.planner import Plan, plan
from magmath.parallel.replicas import Replicas
from magmath.parallel.server_times import server_times
from magmath.parallel.simulator import measured_timeline, save_timeline
from magmath.parallel.strategy import Strategy, Training
from magmath.parallel.strategy_table import STRATEGIES, as_strategy
from magmath.parallel.weight_averaging import WeightAveraging

__all__ = [
    "STRATEGIES",
    "Asynchronous",
    "Auto",
    "CompiledStep",
    "DataParallel",
    "GradientAveraging",
    "Hybrid",
    "ModelParallel",
    "Plan",
    "Replicas",
    "Strategy",
    "Training",
    "WeightAveraging",
    "as_strategy",
    "measured_timeline",
    "plan",
    "save_timeline",
    "server_times",
]


def __dir__() -> list[str]:
    return __all__
