"""The section `train` of each family of models."""
