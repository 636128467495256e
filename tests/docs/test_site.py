"""The built pages: whole, offline, and with every key and command in the reference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from configs.load import COMPONENT_PATHS, dump_recipe, load_recipe, shipped_recipes
from configs.registry import REGISTRIES
from flows.cli import app
from tests.browser import needs_chromium, open_page
from tests.docs.conftest import ROOT

MAX_PICTURE_BYTES = 200_000
MAX_README_LINES = 200


class Loaded(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Links that a reader follows are not fetched."""
        for name, value in attrs:
            if value and tag != "a" and name in ("src", "href", "data", "poster", "srcset"):
                self.addresses.append(value)


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        loaded = Loaded()
        loaded.feed(page.read_text())
        assert loaded.addresses
        assert [address for address in loaded.addresses if re.match(r"(https?:)?//", address)] == [], page.name


def test_styles_load_nothing_from_elsewhere(site: Path) -> None:
    for style in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import)[\s\"']*(?:https?:)?//[^)]*", style.read_text()) == [], style.name


@needs_chromium
def test_the_search_works_from_the_disk(site: Path) -> None:
    with open_page() as page:
        page.goto((site / "tutorial" / "own-tables.html").as_uri())
        page.click("input[name=query]")
        page.keyboard.type("backfill", delay=50)
        found = page.locator(".md-search-result__link").first
        found.click()
        page.wait_for_url("**/backfills.html*")


MAPPINGS = {"dataset.split.files"}
"""Options whose keys are data: names of splits."""


def dotted(values: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in values.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict) and f"{prefix}{key}" not in MAPPINGS:
            yield from dotted(value, f"{prefix}{key}.")


def test_the_reference_has_every_key_of_the_shipped_recipes(site: Path) -> None:
    text = "".join(page.read_text() for page in (site / "reference").glob("*.html"))
    known = set(re.findall(r"<code>([a-z_0-9.]+)</code>", text))
    keys = {key for name in shipped_recipes() for key in dotted(dump_recipe(load_recipe(name)))}
    components = {f"{'.'.join(path)}.name" for path in COMPONENT_PATHS}
    assert keys - known - components == set()
    assert {"train.epochs", "snapshot.as_of", "dataset.nodes.categorical"} <= known


@pytest.mark.parametrize("page", REGISTRIES)
def test_the_reference_has_every_component(site: Path, page: str) -> None:
    text = (site / "reference" / f"{page}.html").read_text()
    for name in REGISTRIES[page].names():
        if not REGISTRIES[page].config_class(name).__module__.startswith("graphmill_file_"):  # of another test
            assert f'<h2 id="{name}">' in text
    assert "<td></td>\n</tr>" not in text, "an option without a meaning"


def test_the_reference_has_every_command(site: Path) -> None:
    text = (site / "reference" / "commands.html").read_text()
    groups: list[tuple[Any, str]] = [
        (app, "graphmill"),
        *((each.typer_instance, _prefix(each.name)) for each in app.registered_groups),
    ]
    found = []
    for group, prefix in groups:
        for command in group.registered_commands:
            name = command.name or command.callback.__name__.replace("_", "-")
            found.append(f"{prefix}-{name}")
            assert f'id="{prefix}-{name}"' in text, name
    assert {"graphmill-run", "graphmill-up", "graphmill-backfill-retry-failed", "graphmill-predict"} <= set(found)
    assert "<td></td>\n</tr>" not in text, "an option without help"


def _prefix(group: Any) -> str:
    return f"graphmill-{group}" if isinstance(group, str) else "graphmill"


def test_pictures_are_small() -> None:
    pictures = list((ROOT / "docs" / "pictures").glob("*.png"))
    assert pictures
    assert {path.name: path.stat().st_size for path in pictures if path.stat().st_size > MAX_PICTURE_BYTES} == {}


def test_the_readme_is_short_and_its_links_lead_somewhere() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= MAX_README_LINES
    links = [*re.findall(r"\]\(([^)#]+)", text), *re.findall(r'src="([^"]+)"', text)]
    assert len(links) > 10
    assert [link for link in links if not link.startswith("http") and not (ROOT / link).exists()] == []
