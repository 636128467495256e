"""A recipe proposed from files alone: which columns are keys, foreign keys, times and features, and what is unsure."""
