"""Which kernel computes an operation: the table of candidates, and the tuner that measures them."""
