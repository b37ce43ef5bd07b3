"""Lifetimes: what refers to arrays and expressions, what is kept for later, and whose memory is
reused. `docs/design.md` (What stays in memory) lists all that is kept, with its limits."""
