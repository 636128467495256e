"""Operators over rows alone: linear maps, norms, dropout, losses of rows."""
