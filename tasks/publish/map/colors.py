"""Colours of maps, in pages and in pictures."""

from __future__ import annotations

import numpy as np

from tasks.arrays import Array

CATEGORIES = (
    *("#2f7ed8", "#e8743b", "#2ca86b", "#d64571", "#8a63d2", "#c79a1e", "#17a2b8", "#a0522d", "#e377c2", "#6b8e23"),
    *("#4059ad", "#ff9f80", "#7fd1ae", "#99306f", "#b5a1e6", "#7a6a00", "#7cc4e8", "#d62728", "#b0b060", "#3d7a7a"),
)
"""Of categories in their order, of more than these of the commonest; further ones share `OTHER`."""
NUMBERS = ("#46307e", "#3f5b8c", "#2b8a8c", "#3cb371", "#a5d43d", "#fde047")
"""From the least to the most, mixed in between."""
PAPER = {"light": "#ffffff", "dark": "#14181d"}
INK = {"light": "#1b1f24", "dark": "#e6eaee"}
OTHER = {"light": "#b4bcc4", "dark": "#4b5560"}


def rgb(color: str) -> Array:
    """Return #rrggbb as float32 (3,), 0 to 1."""
    return np.array([int(color[k : k + 2], 16) for k in (1, 3, 5)], np.float32) / np.float32(255)


def of_numbers(shares: Array) -> Array:
    """Return float32 (..., 3) colours of numbers 0 to 1, float (...); a NaN gets the least one's."""
    stops_S3 = np.stack([rgb(color) for color in NUMBERS])
    at = np.clip(np.nan_to_num(shares), 0, 1) * (len(stops_S3) - 1)
    left = np.minimum(at.astype(np.int64), len(stops_S3) - 2)
    part = (at - left)[..., None].astype(np.float32)
    mixed: Array = stops_S3[left] * (1 - part) + stops_S3[left + 1] * part
    return mixed
