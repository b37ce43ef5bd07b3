"""The steps of an evaluation: what it computes, and what it records of the results."""
