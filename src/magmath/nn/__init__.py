"""Layers, losses and networks."""

from magmath.nn.layers import Activation, Dense, Dropout, Flatten, Layer
from magmath.nn.losses import cross_entropy, mean_squared_error
from magmath.train.network import NeuralNetwork

__all__ = [
    "Activation",
    "Dense",
    "Dropout",
    "Flatten",
    "Layer",
    "NeuralNetwork",
    "cross_entropy",
    "mean_squared_error",
]
