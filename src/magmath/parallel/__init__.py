"""Parallel training: plans of networks on machines, and their simulation."""

from __future__ import annotations

from magmath.parallel.planner import Plan, plan

__all__ = ["Plan", "plan"]
