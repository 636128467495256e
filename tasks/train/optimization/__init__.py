"""From batches to better weights."""
