"""Use a registered model: predictions, vectors and neighbours, of the data that it was trained on and of other data."""
