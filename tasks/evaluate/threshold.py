"""The probability from which a class is predicted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Threshold:
    """A class is predicted from a probability on; below it the likeliest of the others."""

    code: int
    """Of the class; 1 of a binary label."""
    probability: float
