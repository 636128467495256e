"""What follows a training whose outcome is a vector for each node: heads, measures, files."""
