"""Who is told when a night went badly, when it is well again, and when a new model is champion."""
