"""A map of points to look at: one HTML file that works from disk, without a network."""
