"""Stage 4: split the graph into parts, reorder it so that a part is contiguous."""
