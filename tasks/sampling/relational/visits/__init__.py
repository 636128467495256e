"""What walks from a row visit: neighbours by importance."""
