"""Programs: typed instructions, lowering, binding and execution."""
