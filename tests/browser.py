"""Pages in a real browser, for tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.needs import needs

if TYPE_CHECKING:
    from playwright.sync_api import Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = needs("Chromium", CHROMIUM)


# WebGL without a GPU.
SOFTWARE_WEBGL = ("--use-angle=swiftshader", "--enable-unsafe-swiftshader")


@contextmanager
def open_page(width: int = 1300, flags: tuple[str, ...] = ()) -> Iterator[Page]:
    """Open an empty page; `flags` are Chromium's."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *flags])
        page = browser.new_page(viewport={"width": width, "height": 1000})
        page.set_default_timeout(60_000)
        yield page
        browser.close()
