"""Stage 6: metrics by split from the best checkpoint, and predictions under the users' own ids."""
