"""ONNX models as modules of magmath."""
