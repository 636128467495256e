"""What options hold, and how people write it."""
