"""Trainings of layouts."""
