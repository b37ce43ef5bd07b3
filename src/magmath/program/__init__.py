"""Programs: typed instructions, the lowering of planned graphs, and the layout of the arena."""
