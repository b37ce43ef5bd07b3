"""Optimizers for `minimize` and for training."""

from magmath.optim.optimizers import OPTIMIZERS, Adam, GradientDescent, Momentum, Optimizer

__all__ = ["OPTIMIZERS", "Adam", "GradientDescent", "Momentum", "Optimizer"]
