"""The engine: it plans and runs graphs on the current pool, and refers to the resulting arrays."""
