"""Training: trainers, callbacks, strategies and what they report."""

from magmath.train.callbacks import BestWeights, Callback, EarlyStopping, LearningRateSchedule
from magmath.train.history import EpochRecord, History
from magmath.train.network import NeuralNetwork
from magmath.train.trainer import Trainer

__all__ = [
    "BestWeights",
    "Callback",
    "EarlyStopping",
    "EpochRecord",
    "History",
    "LearningRateSchedule",
    "NeuralNetwork",
    "Trainer",
]
