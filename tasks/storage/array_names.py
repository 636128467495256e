"""Names of a graph's arrays that belong to one node type."""

from __future__ import annotations

_OF_TYPE = ("feat of ", "feat_cat of ")


def array_of_type(name: str, kind: str) -> str:
    """Return the name of a type's own array: row i is of the type's i-th node in preprocess's id space (`node_ids`)."""
    return f"{name} of {kind}"


def is_of_type(name: str) -> bool:
    """Whether an array is a type's own: it does not follow the nodes where these are numbered anew."""
    return name.startswith(_OF_TYPE)
