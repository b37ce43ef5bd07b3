"""Training: trainers, callbacks, histories, checkpoints, and parameter search."""

from magmath.train.callbacks import BestWeights, Callback, EarlyStopping, LearningRateSchedule
from magmath.train.feeds import sample_order
from magmath.train.history import EpochRecord, History
from magmath.train.network import NeuralNetwork
from magmath.train.parameter_search import LossCurve, SearchResults, Trial, search
from magmath.train.tensorboard import TensorBoard
from magmath.train.trainer import Trainer

__all__ = [
    "BestWeights",
    "Callback",
    "EarlyStopping",
    "EpochRecord",
    "History",
    "LearningRateSchedule",
    "LossCurve",
    "NeuralNetwork",
    "SearchResults",
    "TensorBoard",
    "Trainer",
    "Trial",
    "sample_order",
    "search",
]


def __dir__() -> list[str]:
    return __all__
