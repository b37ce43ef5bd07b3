"""Plain data that everything else stands on: data types, shapes, devices, index arithmetic."""
