"""Tables whose rows are read and changed at random."""
