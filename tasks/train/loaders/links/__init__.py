"""The loader of edges, and its negatives."""
