"""Lifetimes: what refers to arrays and expressions, what is kept for later, and whose memory is
reused."""
