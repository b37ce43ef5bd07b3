"""The programs of a pool: they are built, checked against the memory of the workers, and found
again."""
