"""Maps: what a page carries and what is refused. What it does in a browser: test_map_in_browser.py."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tasks.publish.map.columns import MAX_CATEGORIES, pack_column, packed_ids, quantized
from tasks.publish.map.page import MapPoints, render, write_map
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


@pytest.mark.parametrize(
    ("coordinates", "message"),
    [
        (np.zeros((3, 4)), r"shape \(points, 2\) or \(points, 3\)"),
        (np.zeros((3, 1)), r"shape \(points, 2\)"),
        (np.zeros(4), r"shape \(points, 2\)"),
        (np.zeros((0, 2)), "at least one point"),
        (np.array([["a", "b"]]), "must be numbers"),
        (np.array([[0, 1], [np.nan, 1], [np.inf, 0]]), r"row 1 are not finite \(2 such rows\)"),
        (np.array([[-1.7e308, 0], [1.7e308, 1]]), "too far apart"),
    ],
)
def test_bad_coordinates_are_refused(coordinates: np.ndarray[Any, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quantized(coordinates)


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
    assert pack_column("n", np.array([2**60 + 1]))["kind"] == "text"  # JavaScript would round it
    assert pack_column("n", pd.array([1, None], dtype="Int64"))["kind"] == "number"


def test_numbers_at_the_end_of_what_floats_hold() -> None:
    column = pack_column("n", np.array([-1.7e308, 1.7e308]))
    assert (column["low"], column["high"]) == (-1.7e308, 1.7e308)


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


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ids": ["a"]}, "3 points and 1 values of ids"),
        ({"ids": ["a"], "columns": {"ids": list("abc")}}, "3 points and 1 values of ids"),
        ({"columns": {"wide": np.zeros((3, 2))}}, r"column wide: .* these are \(3, 2\)"),
        ({"columns": {"topic": ["x"]}}, "3 points and 1 values of topic"),
        ({"columns": {"topic": list("xyz")}, "color": "topik"}, "no column topik to colour by; there are: topic"),
        ({"columns": {"wave": np.array([1j, 2, 3])}}, "column wave: complex"),
        ({"edges": np.array([[0, 1], [0, 3]])}, r"edge 1 joins \[0, 3\], the map has points 0 to 2"),
        ({"edges": np.array([[0.0, 1]])}, "whole numbers of shape"),
    ],
)
def test_bad_input_leaves_nothing(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        write_map(some_points(**changed), tmp_path / "map.html")
    assert not list(tmp_path.iterdir())


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no folder .*maps to write"):
        write_map(some_points(), tmp_path / "maps" / "map.html")


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
