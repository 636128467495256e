"""What layouts of points need before and beside their training: neighbours of vectors, and where points start."""
