"""Diagnostics for users: explanations and profiles of programs, pictures of layouts, progress."""
