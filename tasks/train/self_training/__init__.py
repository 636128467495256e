"""Trainings in a row, each with predictions of the one before as labels."""
