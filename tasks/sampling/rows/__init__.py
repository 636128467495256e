"""Features and labels of a batch's nodes."""
