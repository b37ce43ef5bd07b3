"""magmath's side of the benchmarks, written with the public names."""
