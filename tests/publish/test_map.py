"""Maps: what a page carries, what a picture shows, what is refused. In a browser: test_map_in_browser.py."""

from __future__ import annotations

import base64
import itertools
import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tasks.publish.map import picture
from tasks.publish.map.colors import CATEGORIES, NUMBERS, OTHER, of_numbers, rgb
from tasks.publish.map.columns import MAX_CATEGORIES, MapPoints, pack_column, packed_ids, quantized
from tasks.publish.map.of_run import render
from tasks.publish.map.picture import diameter_of, draw_map
from tests.needs import needs

ROOT = Path(__file__).parents[2]
HOSTILE = "</script><script>document.title='taken'</script>\n\"\\ \u2028 ü"


def unpacked(text: str, dtype: Any) -> np.ndarray[Any, Any]:
    planes = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8)
    return np.ascontiguousarray(planes.reshape(np.dtype(dtype).itemsize, -1).T).view(dtype).ravel()


def page_data(page: str) -> dict[str, Any]:
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


def some_points(**changed: Any) -> MapPoints:
    given = {"coordinates": np.array([[0.0, 0], [4, 1], [2, 2]]), "ids": ["a", "b", HOSTILE], "title": "Small"}
    return MapPoints(**(given | changed))


def test_coordinates_come_back_within_half_a_step_and_keep_their_shape() -> None:
    exact_N3 = np.random.default_rng(0).normal(size=(1_001, 3)) * [50, 3, 1] + [1e4, -7, 0]
    for exact_ND, coarse in ((exact_N3, 4), (exact_N3[:, :2], 1)):
        steps_ND, corner, step = quantized(exact_ND)
        assert steps_ND.dtype == np.uint16
        assert steps_ND[:, 0].max() == 65_535 // coarse * coarse
        np.testing.assert_allclose(steps_ND * step + corner, exact_ND, atol=step * coarse * 0.501)


@pytest.mark.parametrize("rows", [[[3, 3]], [[3, 3], [3, 3]], [[0, 0], [0, 5e-324]]])
def test_points_in_one_place(rows: list[list[float]]) -> None:
    assert quantized(np.array(rows, dtype=float))[0].shape == (len(rows), 2)


def test_categories_are_codes_in_the_order_of_their_names() -> None:
    """Each name keeps its colour, whichever is the commonest tonight."""
    column = pack_column("topic", ["b", None, "a", "b", HOSTILE, "b", "a"])
    labels = ["", *sorted(["a", "b", HOSTILE])]
    assert column["labels"] == labels
    assert dict(zip(labels, column["counts"], strict=True)) == {"": 1, "a": 2, "b": 3, HOSTILE: 1}
    given = ["b", "", "a", "b", HOSTILE, "b", "a"]
    assert [labels[code] for code in unpacked(column["data"], np.uint8)] == given
    assert pack_column("part", ["10", "9", "10", "-1"])["labels"] == ["", "-1", "9", "10"]


def test_of_more_categories_than_colours_the_commonest_come_first() -> None:
    column = pack_column("k", [str(i) for i in range(21) for _ in range(i + 1)])
    assert column["labels"] == ["", *map(str, reversed(range(21)))]


def test_many_categories_take_wider_codes_and_too_many_are_text() -> None:
    wide = pack_column("k", [str(i) for i in range(300)])
    assert sorted(unpacked(wide["data"], wide["type"]).tolist()) == list(range(1, 301))
    assert pack_column("k", [str(i) for i in range(MAX_CATEGORIES)])["kind"] == "category"
    assert pack_column("k", [str(i) for i in range(MAX_CATEGORIES + 1)])["kind"] == "text"


def test_numbers_keep_their_digits() -> None:
    for values, width in [([0.5, np.nan, np.inf], "float32"), ([2**24 + 1, 3], "float64"), ([1e300, 1.0], "float64")]:
        column = pack_column("n", np.array(values))
        assert column["type"] == width
        np.testing.assert_array_equal(unpacked(column["data"], width), np.array(values).astype(width))
    assert pack_column("n", [np.nan, np.nan])["low"] == 0
    column = pack_column("n", np.array([-1.7e308, 1.7e308]))
    assert (column["low"], column["high"]) == (-1.7e308, 1.7e308)
    assert pack_column("n", np.array([2**60 + 1]))["kind"] == "text"  # JavaScript would round it
    assert pack_column("n", pd.array([1, None], dtype="Int64"))["kind"] == "number"


def test_columns_of_arrow() -> None:
    assert pack_column("n", pa.chunked_array([[1.5, None], [3.0]]))["kind"] == "number"
    assert pack_column("k", pa.array(["x", None]).dictionary_encode())["labels"] == ["", "x"]


def test_numbers_that_repeat_are_codes() -> None:
    values = np.random.default_rng(0).choice([0.25, -3, np.nan, 2**30 + 1], 101)
    column = pack_column("n", values)
    different = unpacked(column["different"], np.float64)
    np.testing.assert_array_equal(different[unpacked(column["data"], column["type"])], values)


def test_times_are_seconds_whatever_their_zone_and_unit() -> None:
    moments = pd.to_datetime(["2024-01-01 01:00:00.5+01:00", None], utc=True).as_unit("us")
    for series in (moments, moments.tz_convert("Asia/Tokyo"), moments.tz_convert(None).as_unit("ns")):
        column = pack_column("t", series)
        assert column["kind"] == "time"
        np.testing.assert_array_equal(unpacked(column["data"], np.float64), [1_704_067_200.5, np.nan])


@pytest.mark.parametrize(
    ("ids", "prefix", "width"),
    [
        (["p-007", "p-012", "p-000"], "p-", 3),
        (["0", "12", "345"], "", 0),
        (["node1", "node1"], "node", 1),
        (["10", "11"], "", 2),
        (["999999999"], "", 9),
    ],
)
def test_ids_with_numbers_are_numbers(ids: list[str], prefix: str, width: int) -> None:
    given = packed_ids(ids)
    assert (given["prefix"], given["width"]) == (prefix, width)
    assert [prefix + str(one).zfill(width) for one in unpacked(given["numbers"], np.uint32)] == ids


@pytest.mark.parametrize(
    "ids", [["01", "1"], ["a", "b"], ["1", ""], ["1", "x1"], ["1234567890"], ["²"], ["٣"], ["-1", "1"], [HOSTILE], [""]]
)
def test_other_ids_are_texts(ids: list[str]) -> None:
    assert json.loads(zlib.decompress(base64.b64decode(packed_ids(ids)["texts"]))) == ids


def test_edges_come_back() -> None:
    edges = np.array([[2, 0], [0, 1], [2, 1], [0, 0]])
    packed = page_data(render(some_points(edges=edges)))["edges"]
    starts, ends = unpacked(packed["starts"], np.uint32), unpacked(packed["ends"], np.uint32)
    assert sorted(zip(np.repeat(np.arange(3), starts).tolist(), ends.tolist(), strict=True)) == sorted(
        map(tuple, edges.tolist())
    )


@pytest.mark.slow
@needs("npm", shutil.which("npm"), "sudo apt-get install npm")
def test_the_bundle_is_what_the_script_makes(tmp_path: Path) -> None:
    subprocess.run(["bash", ROOT / "scripts/scatterplot.sh", tmp_path], check=True)
    made = sorted(path.name for path in tmp_path.iterdir())
    assert made == ["scatterplot.LICENSE.txt", "scatterplot.js"]
    for name in made:
        assert (tmp_path / name).read_bytes() == (ROOT / "tasks/publish/map" / name).read_bytes()


def test_the_page_is_whole_and_asks_no_one() -> None:
    page = render(some_points(title=HOSTILE, columns={HOSTILE: [HOSTILE, "x", "x"]}))
    assert page.count("<script") == page.count("</script>") == 3
    assert not re.search(r"""(src|href)\s*=\s*["'](https?:)?//""", page)
    assert "default-src 'none'" in page
    assert "three.js authors" in page  # with the licences
    assert page_data(page)["columns"][0]["name"] == HOSTILE


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


def test_the_more_points_the_smaller_and_none_makes_a_jump() -> None:
    sizes = [diameter_of(count) for count in range(1, 40_000)]
    assert all(0 <= before - after < 0.01 for before, after in itertools.pairwise(sizes))
    assert (diameter_of(1), diameter_of(5_000), diameter_of(10**7)) == (3.6, 2.0, 0.6)
