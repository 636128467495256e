"""What is said of layouts: how good they are, and a table of their points."""
