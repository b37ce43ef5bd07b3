"""Convolutions, pooling: direct, Winograd, depthwise, and the choice between them."""
