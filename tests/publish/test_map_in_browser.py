"""A map in Chromium: what its user sees, moves, chooses and saves."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tasks.ingest.tables.files import TableFiles
from tasks.publish.map.colors import CATEGORIES, rgb
from tasks.publish.map.columns import MapPoints
from tasks.publish.map.of_run import write_map
from tests.browser import SOFTWARE_WEBGL, needs_chromium, open_page
from tests.publish.test_map import HOSTILE

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = needs_chromium
COUNT = 301
ALONE = 7  # this point lies apart, so that the pointer meets no other


def points(dimensions: int = 2, count: int = COUNT) -> MapPoints:
    generator = np.random.default_rng(0)
    coordinates_ND = generator.uniform(-1, 1, (count, dimensions))
    coordinates_ND[ALONE] = [3, *[0] * (dimensions - 1)]
    columns = {
        "topic": [HOSTILE if i % 3 else "even" for i in range(count)],
        "score": np.where(np.arange(count) == ALONE, np.nan, np.linspace(0, 1, count)),
        "seen": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(count), "D"),
        "note": [2**60 + i for i in range(count)],  # text, as JavaScript would round such numbers
    }
    edges = np.array([[ALONE, 8], [9, ALONE], [1, 2]])
    return MapPoints(HOSTILE, coordinates_ND, [f"id-{i}" for i in range(count)], columns, edges, "topic")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("maps")
    write_map(points(), made / "flat.html")
    write_map(points(3), made / "deep.html")
    return made


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_page(flags=SOFTWARE_WEBGL) as page:
        opened = page.context.browser
        assert opened
        yield opened


class Map:
    """A page with a map, which is closed with its test; errors and requests for other places fail the test."""

    def __init__(self, browser: Browser, address: str, **options: Any) -> None:
        self.context = browser.new_context(
            **{"viewport": {"width": 760, "height": 520}, "color_scheme": "light"} | options
        )
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(30_000)
        self.troubles: list[str] = []
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("console", lambda said: self.troubles.append(said.text) if said.type == "error" else None)
        self.page.on("request", lambda asked: self.troubles.append(asked.url) if asked.url[:4] == "http" else None)
        self.page.goto(address)
        self.ready()

    def ready(self) -> None:
        self.page.wait_for_selector("body[data-state=ready]")
        self.page.evaluate("graphmillMap.view.whole()")

    def at(self, row: int) -> tuple[float, float]:
        box = self.page.locator("#stage").bounding_box()
        assert box
        x, y, _ = self.page.evaluate(f"graphmillMap.view.project({row})")
        return box["x"] + x, box["y"] + y

    def says(self, place: str, text: str) -> None:
        from playwright.sync_api import expect

        expect(self.page.locator(place)).to_have_text(text)

    def camera(self) -> dict[str, Any]:
        return self.page.evaluate("graphmillMap.view.frame()")

    def colors(self) -> set[tuple[int, ...]]:
        """The colours on the screen, of pixels whose neighbour has the same: without the smoothed rims of points."""
        pixels = self.page.evaluate("""async () => {
          const { view } = graphmillMap, gl = view.renderer.getContext(); await view.whole();
          const [w, h] = [gl.drawingBufferWidth, gl.drawingBufferHeight], all = new Uint8Array(w * h * 4);
          gl.readPixels(0, 0, w, h, gl.RGBA, gl.UNSIGNED_BYTE, all);
          const words = new Uint32Array(all.buffer), counts = new Map();
          for (let i = 1; i < words.length; i++) {
            if (words[i] === words[i - 1]) counts.set(words[i], 1 + (counts.get(words[i]) || 0));
          }
          return [...counts].filter(([, n]) => n > 20).map(([word]) => [word & 255, word >> 8 & 255, word >> 16 & 255]);
        }""")
        return {tuple(color) for color in pixels}

    def color_at(self, row: int) -> list[int]:
        return self.page.evaluate(
            """async (row) => {
          const { view } = graphmillMap, gl = view.renderer.getContext(), pixel = new Uint8Array(4); await view.whole();
          const [x, y] = view.project(row);
          gl.readPixels(Math.round(x), gl.drawingBufferHeight - Math.round(y), 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, pixel);
          return [...pixel.slice(0, 3)];
        }""",
            row,
        )

    def lasso(self, row: int) -> None:
        """Draw a triangle around the row's point by the mouse."""
        x, y = self.at(row)
        self.page.mouse.move(x - 20, y - 20)
        self.page.mouse.down()
        for place in ((x + 20, y - 20), (x, y + 30), (x - 20, y - 20)):
            self.page.mouse.move(*place, steps=3)
        self.page.mouse.up()


@pytest.fixture(scope="module")
def one_page(browser: Browser, folder: Path) -> Iterator[Map]:
    yield from _open(browser, folder / "flat.html")


@pytest.fixture
def flat(one_page: Map) -> Map:
    """The page of the tests before, as it was in the beginning: to open one takes a second."""
    page = one_page.page
    page.mouse.move(1, 1)
    if page.locator("#table").is_visible():
        page.click("#table [data-part=close]")
    page.evaluate("document.querySelector('#table select').value = 'all'")
    page.select_option("#color", "score")
    page.select_option("#color", "topic")
    page.locator("#edges").uncheck()
    if page.get_attribute("html", "data-theme") == "dark":
        page.click("#theme")
    page.keyboard.press("Escape")
    page.keyboard.press("0")
    one_page.ready()
    return one_page


@pytest.fixture
def deep(browser: Browser, folder: Path) -> Iterator[Map]:
    yield from _open(browser, folder / "deep.html")


def _open(browser: Browser, path: Path, after: str = "", **options: Any) -> Iterator[Map]:
    shown = Map(browser, path.as_uri() + after, **options)
    yield shown
    shown.context.close()
    assert not shown.troubles


def test_pointing_shows_all_columns_of_a_point(flat: Map) -> None:
    assert flat.page.title() == f"{HOSTILE} - graphmill map".replace("\n", " ")
    flat.page.mouse.move(*flat.at(ALONE))
    card = flat.page.locator("#card").inner_text().split("\n")
    assert card[card.index("score") + 1 :] == ["missing", "seen", "2024-01-08", "note", str(2**60 + ALONE), "row", "7"]
    assert card[:2] == ["id", "id-7"]
    x, y = flat.at(ALONE)
    flat.page.mouse.move(x - 60, y - 60)
    flat.page.wait_for_selector("#card", state="hidden")


def test_each_column_colours_and_filters(flat: Map) -> None:
    page, topics = flat.page, flat.colors()
    assert len(topics) >= 3
    assert page.locator("#color option").all_inner_texts() == ["topic", "score", "seen"]
    page.select_option("#color", "score")
    scores = flat.colors()
    assert len(scores & topics) == 1  # the paper
    assert page.locator("#legend .missing").inner_text().split() == ["missing", "1"]
    page.fill("[data-limit=least]", "0.5")
    page.press("[data-limit=least]", "Enter")
    flat.says("#status", "151 of 301 points")
    assert len(flat.colors()) < len(scores)
    page.fill("[data-limit=least]", "half")
    page.press("[data-limit=least]", "Enter")
    flat.says("#status", "151 of 301 points")
    page.select_option("#color", "seen")
    flat.says("#status", "301 points")
    assert not page.locator("#legend .missing").count()
    page.fill("[data-limit=most]", "2024-01-02 12:00")
    page.press("[data-limit=most]", "Enter")
    flat.says("#status", "2 of 301 points")
    page.select_option("#color", "topic")
    assert flat.colors() == topics


def test_each_point_has_its_own_colour(browser: Browser, tmp_path: Path) -> None:
    """A grid of points far from each other: what is drawn at each one's place is its own category's colour."""
    grid = np.stack(np.meshgrid(np.arange(7), np.arange(7)), axis=-1).reshape(-1, 2)
    topics = np.random.default_rng(0).choice(["a", "a", "b", "c"], len(grid))
    write_map(MapPoints("Grid", grid, range(len(grid)), {"topic": topics}), tmp_path / "map.html")
    order = sorted(set(topics.tolist()))
    for shown in _open(browser, tmp_path / "map.html"):
        for row, topic in list(enumerate(topics))[::5]:
            mixed = 255 * (0.85 * rgb(CATEGORIES[order.index(topic)]) + 0.15)
            np.testing.assert_allclose(shown.color_at(row), mixed, atol=3)
        shown.page.locator("#legend input").first.uncheck()
        for row in (np.flatnonzero(topics == order[0])[0], np.flatnonzero(topics == order[1])[0]):
            assert (shown.color_at(int(row)) == [255, 255, 255]) == (topics[row] == order[0])


def test_a_theme_keeps_what_the_legend_hides(flat: Map) -> None:
    page = flat.page
    light = flat.colors()
    page.locator("#legend input").first.uncheck()
    flat.says("#status", "101 of 301 points")
    page.keyboard.press("t")
    assert (255, 255, 255) in light
    assert (255, 255, 255) not in flat.colors()
    flat.says("#status", "101 of 301 points")
    assert not page.locator("#legend input").first.is_checked()
    page.locator("#legend label").first.dblclick()  # this one alone
    flat.says("#status", "200 of 301 points")
    page.locator("#legend label").first.dblclick()
    flat.says("#status", "301 points")


def test_search(flat: Map) -> None:
    page, found = flat.page, flat.page.locator("#found button")
    page.focus("#stage")
    page.keyboard.press("/")
    page.keyboard.type("ID-7")
    assert found.all_inner_texts() == ["id-7", *(f"id-{i}" for i in range(70, 80))]  # the exact one first
    page.keyboard.press("Enter")
    flat.says("#chosen-count", "1 chosen")
    assert page.url.endswith("#id=id-7")
    page.fill("#search", "d-29")
    assert found.count() == 11
    page.fill("#search", "id-301")
    flat.says("#found", "no id holds this")
    page.keyboard.press("Enter")
    flat.says("#chosen-count", "1 chosen")
    page.keyboard.press("Escape")
    page.wait_for_selector("#chosen", state="hidden")
    assert not page.locator("#found").inner_text()


def test_lasso_chooses_rows_and_saves_them(flat: Map) -> None:
    page = flat.page
    page.click("#lasso")
    flat.lasso(ALONE)
    flat.says("#chosen-count", "1 chosen")
    assert page.get_attribute("#lasso", "aria-pressed") == "false"
    page.keyboard.press("0")
    box = page.locator("#stage").bounding_box()
    assert box
    page.keyboard.down("Shift")
    page.mouse.move(box["x"] + 2, box["y"] + 2)
    page.mouse.down()
    for x, y in ((0.99, 0.01), (0.99, 0.99), (0.01, 0.99)):
        page.mouse.move(box["x"] + box["width"] * x, box["y"] + box["height"] * y)
    page.mouse.up()
    page.keyboard.up("Shift")
    flat.says("#chosen-count", "301 chosen")
    page.keyboard.press("b")
    flat.says("#table [data-part=count]", "301 rows")
    page.click("#table >> text=id-2")  # one of the chosen is shown, and all stay chosen
    flat.says("#row dd >> nth=0", "id-2")
    flat.says("#table [data-part=count]", "301 rows")
    assert page.url.endswith("#id=id-2")
    with page.expect_download() as saving:
        page.click("text=Save CSV")
    rows = list(csv.DictReader(io.StringIO(saving.value.path().read_bytes().decode(), newline="")))
    given = points()
    assert [row["id"] for row in rows] == list(given.ids)
    assert [row["topic"] for row in rows] == given.columns["topic"]
    assert rows[ALONE]["score"] == ""
    np.testing.assert_allclose([float(row["score"]) for row in rows[8:]], given.columns["score"][8:], rtol=1e-6)
    assert rows[1]["note"] == str(2**60 + 1)


def test_the_table_leads_to_points_and_points_to_rows(flat: Map) -> None:
    page, lines = flat.page, flat.page.locator("#table tbody tr")
    page.keyboard.press("b")
    assert lines.count() < 30
    page.click("#table >> text=id-3")
    flat.says("#chosen-count", "1 chosen")
    page.focus("#table .scroll")
    page.keyboard.press("End")
    assert lines.last.get_attribute("data-row") == "300"
    lines.last.locator("a").click()
    flat.says("#row dd >> nth=0", "id-300")
    assert lines.last.get_attribute("data-row") == "300"  # it stays where it was scrolled to
    page.fill("#search", "id-3")
    page.keyboard.press("Enter")
    flat.says("#row dd >> nth=0", "id-3")
    page.click("text=Show its row")
    assert page.locator("#table tr.marked").get_attribute("data-row") == "3"
    page.click("#table th >> text=score")
    page.click("#table th >> text=score")
    page.wait_for_selector("#table th[aria-sort=descending]")
    assert [line.get_attribute("data-row") for line in lines.all()[:2]] == ["7", "300"]  # the missing value, then 1
    page.select_option("#color", "score")
    page.fill("[data-limit=least]", "0.5")
    page.press("[data-limit=least]", "Enter")
    page.select_option("#table select", "shown")
    flat.says("#table [data-part=count]", "151 rows")
    assert lines.first.get_attribute("data-row") == "300"


def test_an_address_with_an_id_chooses_its_point(browser: Browser, folder: Path) -> None:
    for shown in _open(browser, folder / "flat.html", "#id=id-9"):
        shown.says("#chosen-count", "1 chosen")
        assert "id-9" in shown.page.inner_text("#row")
        shown.page.reload()
        shown.ready()
        shown.says("#chosen-count", "1 chosen")
        shown.page.evaluate("location.hash = '#id=nobody'")
        shown.says("#status", "no point has the id nobody")


def test_keys_and_mouse_move_the_map(flat: Map) -> None:
    page = flat.page
    page.focus("#stage")
    start = flat.camera()
    page.keyboard.press("ArrowRight")
    assert flat.camera()["target"][0] > start["target"][0]
    page.keyboard.press("+")
    assert flat.camera()["zoom"] > start["zoom"]
    page.keyboard.press("0")
    assert flat.camera()["zoom"] == start["zoom"]
    page.mouse.move(300, 300)
    page.mouse.wheel(0, -300)
    page.mouse.down()
    page.mouse.move(350, 300, steps=3)
    page.mouse.up()
    now = flat.camera()
    assert now["zoom"] > start["zoom"]
    assert now["target"] != start["target"]
    assert page.locator("#chosen").is_hidden()  # a drag is no click


def test_edges_of_what_is_chosen(flat: Map) -> None:
    page = flat.page
    page.mouse.click(*flat.at(ALONE))
    flat.says("#chosen-count", "1 chosen")
    page.focus("#stage")
    page.keyboard.press("e")
    assert page.get_attribute("#lines", "data-lines") == "2"
    page.locator("#legend input").last.uncheck()  # hides the point 9
    assert page.get_attribute("#lines", "data-lines") == "1"


def test_a_map_in_space_turns(deep: Map) -> None:
    page, start = deep.page, deep.camera()
    before = deep.at(ALONE)
    page.mouse.move(200, 300)
    page.mouse.down()
    page.mouse.move(280, 320, steps=4)
    page.mouse.up()
    turned = deep.camera()
    assert turned["target"] == start["target"]
    assert turned["position"] != start["position"]
    assert deep.at(ALONE) != before
    page.mouse.move(*deep.at(ALONE))
    page.wait_for_selector("#card:not([hidden])")
    assert "id-7" in page.inner_text("#card")
    page.click("#lasso")
    deep.lasso(ALONE)
    deep.says("#chosen-count", "1 chosen")
    page.focus("#stage")
    page.keyboard.press("Shift+ArrowLeft")
    assert deep.camera()["position"] != turned["position"]
    assert deep.camera()["target"] == turned["target"]


def test_fingers_on_a_phone(browser: Browser, folder: Path) -> None:
    options = {
        "viewport": {"width": 390, "height": 740},
        "has_touch": True,
        "is_mobile": True,
        "device_scale_factor": 2,
    }
    for shown in _open(browser, folder / "flat.html", **options):
        page = shown.page
        assert page.evaluate("document.documentElement.scrollWidth") == 390  # nothing sticks out
        page.touchscreen.tap(*shown.at(ALONE))
        shown.says("#chosen-count", "1 chosen")
        before = shown.camera()
        session = shown.context.new_cdp_session(page)

        def touch(*steps: list[tuple[int, int]], session: Any = session) -> None:
            """Put fingers down at the first places, move them through the others, and take them away."""
            for number, places in enumerate([*steps, []]):
                kind = "touchEnd" if not places else "touchMove" if number else "touchStart"
                fingers = [{"x": x, "y": y, "id": finger} for finger, (x, y) in enumerate(places)]
                session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": fingers})

        touch(*([(195 - spread, 300), (195 + spread, 300)] for spread in (20, 40, 80)))
        assert shown.camera()["zoom"] > before["zoom"]
        touch(*([(x, 300)] for x in (100, 120, 180)))
        assert shown.camera()["target"] != before["target"]
        shown.says("#chosen-count", "1 chosen")
        page.click("#reset")
        page.click("#lasso")
        touch(*([place] for place in ((2, 250), (388, 250), (388, 500), (2, 500))))
        assert int(page.inner_text("#chosen-count").split()[0]) > 100


@pytest.mark.slow
def test_a_million_rows(browser: Browser, tmp_path: Path) -> None:
    count = 1_000_000
    given = MapPoints("Many", np.random.default_rng(0).normal(size=(count, 2)), range(count), {"n": np.arange(count)})
    assert write_map(given, tmp_path / "map.html") < 15e6
    for shown in _open(browser, tmp_path / "map.html", "#id=999999"):
        page, lines = shown.page, shown.page.locator("#table tbody tr")
        page.click("text=Show its row")
        assert page.locator("#table tr.marked").get_attribute("data-row") == "999999"
        assert lines.count() < 60
        page.evaluate(
            "(at) => { const box = document.querySelector('#table .scroll'); box.scrollTop = box.scrollHeight / 2; }"
        )
        page.wait_for_timeout(200)
        middle = int(lines.first.get_attribute("data-row") or 0)
        assert abs(middle - count / 2) < 2_000
        page.locator("#table .scroll").hover()
        page.mouse.wheel(0, 240)
        page.wait_for_timeout(200)
        assert int(lines.first.get_attribute("data-row") or 0) == middle + 10
        assert re.fullmatch(r"1,000,000 points", page.inner_text("#status"))


def test_saved_rows_hold_no_formulas_and_come_back(browser: Browser, tmp_path: Path) -> None:
    ids = ["=1+1", "+cmd", "-5", "@x", "\tx", "'=1", "plain", "-x"]
    columns = {"=name": [f"={i}" for i in range(8)], "n": np.linspace(-1, 1, 8), "text": [*ids[1:], ids[0]]}
    edges, place = np.zeros((0, 2), np.int64), tmp_path / "map.html"
    write_map(MapPoints("map", np.random.default_rng(0).uniform(-1, 1, (8, 2)), ids, columns, edges, "n"), place)
    shown = Map(browser, place.as_uri())
    shown.page.keyboard.press("b")
    with shown.page.expect_download() as saving:
        shown.page.click("text=Save CSV")
    saving.value.save_as(tmp_path / "rows.csv")
    shown.context.close()
    assert not shown.troubles
    cells = [cell for line in csv.reader((tmp_path / "rows.csv").read_text().splitlines()) for cell in line]
    assert not [cell for cell in cells if cell[:1] in ("=", "+", "@", "\t")]
    assert "'-x" in cells
    assert "-5" in cells
    files = TableFiles((f"{tmp_path}/rows.csv",))
    read = pa.Table.from_batches([one.data for one in files.batches(["id", "=name", "n", "text"], ["id"])])
    assert read.column("id").to_pylist() == ids
    assert read.column("=name").to_pylist() == columns["=name"]
    assert read.column("text").to_pylist() == columns["text"]
    np.testing.assert_allclose(read.column("n").to_numpy(), columns["n"], rtol=1e-6)
