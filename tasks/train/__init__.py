"""Stage 5: the one training loop and everything that feeds it."""
