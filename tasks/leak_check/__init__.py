"""Proof that nothing later than a moment reaches a model: data is changed from the moment on, and inputs stay equal."""
