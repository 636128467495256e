"""DGL's convolutions as models, and the one door to DGL."""
