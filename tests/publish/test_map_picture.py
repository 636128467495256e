"""Maps as pictures: what is counted by pixel, what is drawn, and what is refused."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tasks.publish.map import picture
from tasks.publish.map.colors import CATEGORIES, NUMBERS, OTHER, of_numbers, rgb
from tasks.publish.map.columns import MapPoints
from tasks.publish.map.picture import diameter_of, draw_map
from tests.publish.test_map import HOSTILE

MISSING_LETTERS = "図 $x^2$ \x00 \\frac{"


@pytest.fixture(autouse=True)
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture, "DPI", 100)


def some(count: int = 301, dimensions: int = 2, **changed: Any) -> MapPoints:
    generator = np.random.default_rng(0)
    columns = {
        "topic": np.array([HOSTILE, MISSING_LETTERS, None], dtype=object)[generator.integers(0, 3, count)],
        "score": np.where(np.arange(count) % 7, generator.random(count), np.nan),
        "seen": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(count), "D"),
    }
    edges = generator.integers(0, count, (2 * count, 2))
    points = MapPoints(HOSTILE, generator.normal(size=(count, dimensions)), range(count), columns, edges)
    return replace(points, **changed)


def pixels(path: Path) -> np.ndarray[Any, Any]:
    from matplotlib import image

    return np.asarray(image.imread(path))[..., :3]


def has(picture_HW3: np.ndarray[Any, Any], color: str, least: int = 4) -> bool:
    return int((np.abs(picture_HW3 - rgb(color)).max(axis=-1) < 0.02).sum()) >= least


def test_numbers_have_the_colours_of_the_page() -> None:
    np.testing.assert_allclose(of_numbers(np.array([-1, 0, 1, 2.0])), [rgb(NUMBERS[k]) for k in (0, 0, -1, -1)])
    np.testing.assert_allclose(of_numbers(np.array([0.1])), [(rgb(NUMBERS[0]) + rgb(NUMBERS[1])) / 2], rtol=1e-6)


@pytest.mark.parametrize(("suffix", "few"), [(".svg", True), (".png", False), (".svg", False)])
def test_equal_inputs_give_equal_bytes(suffix: str, few: bool, tmp_path: Path, monkeypatch: Any) -> None:
    if not few:
        monkeypatch.setattr(picture, "MAX_CIRCLES", 100)
    for name in "ab":
        draw_map(some(color="topic"), tmp_path / (name + suffix))
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()
    assert len(list(tmp_path.iterdir())) == 2
    if suffix == ".svg":
        text = (tmp_path / "a.svg").read_text()
        ElementTree.fromstring(text)
        assert "<script" not in text
        assert ("<image" in text) == (not few)
        assert "topic</text>" in text


@pytest.mark.parametrize("most", [30_000, 100])
def test_colours_and_paper(most: int, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(picture, "MAX_CIRCLES", most)
    draw_map(some(coordinates=np.arange(602).reshape(301, 2) * [1, -1], color="topic"), tmp_path / "map.png")
    drawn = pixels(tmp_path / "map.png")
    assert drawn.shape[1] == 600
    assert all(has(drawn, color) for color in (*CATEGORIES[:2], OTHER["light"]))
    assert not has(drawn, CATEGORIES[2])
    assert has(drawn, "#ffffff", 30_000)


@pytest.mark.parametrize("color", ["score", "seen"])
def test_numbers_and_days_get_a_bar(color: str, tmp_path: Path) -> None:
    draw_map(some(3, 3, color=color) if color == "seen" else some(color=color), tmp_path / "map.svg")
    text = (tmp_path / "map.svg").read_text()
    assert ("2024-01-02" if color == "seen" else "missing") in text
    assert "≤ " in text
    assert "≥ " in text


def test_many_categories_and_little_room(tmp_path: Path) -> None:
    names = [f"category {k % 50} with a name that is too long for the paper" for k in range(301)]
    draw_map(some(columns={"k": names}, coordinates=np.eye(301)[:, :2]), tmp_path / "map.svg")
    text = (tmp_path / "map.svg").read_text()
    assert "others</text>" in text
    assert "…</text>" in text


@pytest.mark.parametrize(
    "coordinates", [np.zeros((1, 2)), np.ones((3, 3)), np.array([[0, 0], [1, 0.0]]), np.array([[1e300, 0], [0, 0]])]
)
def test_points_in_one_place_or_line(coordinates: np.ndarray[Any, Any], tmp_path: Path) -> None:
    for most in (30_000, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(picture, "MAX_CIRCLES", most)
            draw_map(some(len(coordinates), coordinates=coordinates), tmp_path / "map.png")
            assert has(pixels(tmp_path / "map.png"), OTHER["light"])


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("map.jpg", {}, r"\.png, \.svg"),
        ("map", {}, "the file's ending decides"),
        ("none/map.png", {}, "there is no folder"),
        ("map.png", {"color": "topik"}, "no column topik to colour by; there are: topic, score, seen"),
        ("map.png", {"edges": np.array([[0, 301]])}, "edge 0 joins"),
        ("map.png", {"ids": [1]}, "301 points and 1 values of ids"),
        ("map.png", {"coordinates": np.full((301, 2), np.nan)}, "not finite"),
    ],
)
def test_bad_input_leaves_nothing(name: str, changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        draw_map(some(**changed), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_the_more_points_the_smaller_and_none_makes_a_jump() -> None:
    sizes = [diameter_of(count) for count in range(1, 40_000)]
    assert all(0 <= before - after < 0.01 for before, after in itertools.pairwise(sizes))
    assert (diameter_of(1), diameter_of(5_000), diameter_of(10**7)) == (3.6, 2.0, 0.6)
