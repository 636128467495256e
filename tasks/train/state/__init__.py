"""What a training keeps of itself: checkpoints, the journal, and when they are written."""
