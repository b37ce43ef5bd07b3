"""The base of the classes whose methods are distributions of random numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod

from magmath.api.creation import DTypeLike
from magmath.api.random_draw import DistributionParameter, Draw, DrawState, Size


class DistributionMethods(ABC):
    """Methods that draw random numbers from the state of a generator."""

    __slots__ = ()

    @property
    @abstractmethod
    def _state(self) -> DrawState:
        """The generator state."""

    def _draw(
        self, name: str, size: Size, dtype: DTypeLike, **parameters: DistributionParameter
    ) -> Draw:
        return Draw(self._state, name, size, dtype, **parameters)
