"""Models that are points in two or three dimensions: layouts of graphs and of vectors."""
