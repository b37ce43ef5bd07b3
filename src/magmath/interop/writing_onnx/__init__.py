"""Modules of magmath as ONNX models."""
