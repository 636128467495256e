"""How ranks share the work."""
