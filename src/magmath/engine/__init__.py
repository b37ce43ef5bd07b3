"""The engine: from graphs to programs on the current pool, and what they refer to."""
