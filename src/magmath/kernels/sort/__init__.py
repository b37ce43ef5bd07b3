"""Sorting keys of any type, on one worker and on several."""
