"""One operation a file: a plain reference, a fast path, and the dispatch between them."""
