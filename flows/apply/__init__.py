"""Using a registered model: predictions, vectors, its files."""
