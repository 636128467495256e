"""Numbers of texts: what encodes them, and what keeps their vectors."""
