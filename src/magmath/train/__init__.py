"""Training: networks, strategies and what they report."""

from magmath.train.history import EpochRecord, History
from magmath.train.network import NeuralNetwork

__all__ = ["EpochRecord", "History", "NeuralNetwork"]
