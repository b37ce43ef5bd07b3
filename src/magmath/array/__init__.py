"""Arrays: the handle, its namespace, and the engine that evaluates it."""
