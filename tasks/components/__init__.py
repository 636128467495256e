"""Stage 3: weakly connected components and the filter over them."""
