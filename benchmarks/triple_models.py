"""The models of triples that `benchmarks.ranking` and `benchmarks.knowledge` compare, and PyKEEN's of the same kind."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from benchmarks import gnn_graphs

DATA = Path(os.environ.get("GRAPHMILL_DATA", gnn_graphs.DATA))
MODELS = ("TransE", "ComplEx", "RotatE")


def columns(model: str, width: int) -> int:
    """Return the numbers in an entity's row of so many real or complex ones, as graphmill's `dim` counts them.

    PyKEEN's `embedding_dim` is the width itself.
    """
    return width if model == "TransE" else 2 * width


def import_pykeen(peers: str, scratch: Path) -> None:
    """Import PyKEEN from a folder of packages; it makes folders of its own in `scratch` instead of the user's home."""
    os.environ["PYSTOW_HOME"] = os.environ["PYKEEN_HOME"] = str(scratch)
    sys.path.append(peers)
    import pykeen.models  # noqa: F401


def pykeen_model(model: str, factory: Any, width: int, **words: Any) -> Any:
    """Return a model of PyKEEN with drawn vectors; `words`: what its class takes beside that."""
    from pykeen.models import ComplEx, RotatE, TransE

    kinds: dict[str, tuple[Any, dict[str, Any]]] = {
        "TransE": (TransE, {"scoring_fct_norm": 1}),
        "ComplEx": (ComplEx, {}),
        "RotatE": (RotatE, {}),
    }
    kind, own = kinds[model]
    return kind(triples_factory=factory, embedding_dim=width, random_seed=0, **own, **words)
