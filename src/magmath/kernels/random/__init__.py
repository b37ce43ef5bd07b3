"""Counter-based random numbers and the distributions made of them."""
