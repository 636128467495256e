"""The points of maps: their file, and what is known of them."""
