"""Graph neural networks, one a file, and what single ones of them are made of."""
