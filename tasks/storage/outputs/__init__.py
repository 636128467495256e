"""Files for users, written whole or not at all."""
