"""The cost model of the hardware, which planners compare plans by."""
