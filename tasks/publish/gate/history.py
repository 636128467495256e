"""Who was champion when: the moves of the alias, kept as a tag of the registered model.

An alias that was moved by other means (MLflow's pages) is believed: the move is missing from the history, and what was
champion before is the last version that the history knows of.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

TAG = "graphmill.champion_history"
_MAX_CHARACTERS = 4500  # MLflow's column holds 5,000: about 50 moves

MoveReason = Literal["gate", "promote", "rollback"]


@dataclass(frozen=True)
class Move:
    """The alias came to a version."""

    version: str
    before: str | None
    """The version that it was taken from; None: there was no champion."""
    how: MoveReason
    """By the gate of a training, by hand, or taken back."""
    at: str
    """ISO 8601, UTC."""


def read_history(text: str | None) -> list[Move]:
    """Read the tag, oldest move first; what cannot be read is no history."""
    try:
        return [Move(**entry) for entry in json.loads(text or "[]")]
    except (TypeError, ValueError, RecursionError):
        return []


def with_move(history: Sequence[Move], version: str, before: str | None, how: MoveReason) -> str:
    """Return the tag with another move; the oldest ones go where it would get too long."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    moves = [asdict(move) for move in (*history, Move(version, before, how, now))]
    while len(text := json.dumps(moves, separators=(",", ":"))) > _MAX_CHARACTERS:
        del moves[0]
    return text


def happened(history: Sequence[Move], champion: str | None) -> list[Move]:
    """Return the moves without the last ones that never happened: one is written down before the alias is moved."""
    moves = list(history)
    while moves and moves[-1].version != champion and moves[-1].before == champion:
        moves.pop()
    return moves


def champion_before(history: Sequence[Move], champion: str) -> str | None:
    """Return the version that was champion before the present one; None where that is not known."""
    moves = happened(history, champion)
    if not moves:
        return None
    return moves[-1].before if moves[-1].version == champion else moves[-1].version
