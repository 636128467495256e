"""How seeds, edges and graphs become mini-batches."""
