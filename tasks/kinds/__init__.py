"""What is scored and how: a file for each kind of task."""
