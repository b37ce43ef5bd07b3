"""Variables: named arrays that can be assigned."""
