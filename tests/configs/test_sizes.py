"""Sizes of memory in recipes."""

from __future__ import annotations

from typing import Any

import pytest

from configs.errors import RecipeError
from configs.load import build_recipe
from configs.values.sizes import number_of_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("500MB", 5e8),
        ("1.5 GiB", 1.5 * 2**30),
        ("2e9", 2e9),
        ("64k", 64e3),
        ("7", 7),
        (" 3 tb ", 3e12),
        (12, 12),
        (None, None),
    ],
)
def test_sizes(text: Any, size: Any) -> None:
    assert number_of_bytes(text) == size


@pytest.mark.parametrize("text", ["", "MB", "5 megabytes", "-3MB", "1,000", "nan", "1e", "3 MBit"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="give bytes, or a unit as in 500MB"):
        number_of_bytes(text)


def test_a_recipe_takes_them() -> None:
    def recipe(memory: Any) -> Any:
        train = {"strategy": {"name": "block_grid", "memory": memory}}
        return build_recipe({"name": "x", "dataset": "synthetic", "model": "skipgram", "train": train}).train

    assert recipe("500MB").strategy.memory == recipe(5e8).strategy.memory == 5e8
    with pytest.raises(RecipeError, match=r"train\.strategy\.memory"):
        recipe("lots")
