"""What a training over a graph in parts needs besides: its memory, its validation, what short rows cost."""
