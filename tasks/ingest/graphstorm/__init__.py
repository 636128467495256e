"""From GraphStorm's description of a graph to a recipe over the same tables."""
