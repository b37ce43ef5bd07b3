"""Provenance: how evaluated arrays were computed, so that gradients can build their expressions
again."""
