"""Which machines a training runs on, which of them this one is, and the start of the others."""
