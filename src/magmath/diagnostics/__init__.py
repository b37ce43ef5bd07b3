"""Diagnostics for users: explanations and profiles of programs, and progress displays."""
