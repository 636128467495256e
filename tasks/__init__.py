"""The stages of the pipeline, a folder a stage, and what they share: artifacts, caching, the graph store."""
