"""Edges that have labels."""

from tasks.kinds.edge.kind import KIND as KIND
