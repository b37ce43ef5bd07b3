"""The ranges of stream numbers: one for each kind of generator, so that no two of one seed draw the
same numbers.

A range begins at its constant and ends where the next one begins; the last one ends at 1 << 63.
"""

USER_STREAMS = 0
"""The generator of the pool, from which users and layers draw."""
INITIAL_STREAMS = 1 << 40
"""Initial values of parameters: it does not matter for other draws when a layer is built."""
ORDER_STREAMS = 1 << 41
"""The order of samples, with a stream for each epoch."""
TRAINER_STREAMS = 1 << 42
"""Layers that are trained by a trainer with a seed."""
GENERATOR_STREAMS = 1 << 44
"""Generators of users, and random states of modules with a seed."""
MODULE_STREAMS = 1 << 50
"""Random states of modules without a seed."""
STREAMS_OF_MODULE = 1 << 32
"""The streams of each of these states."""
