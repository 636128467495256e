"""What a report draws of each kind."""
