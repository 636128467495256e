"""What is kept of a run: what it was asked, its record in the home, and how that is shown."""
