"""Texts that come from data, recipes and errors, in Markdown that Prefect's and MLflow's pages show."""

from __future__ import annotations

import html
import re


def plain_markdown(text: object) -> str:
    """Return a text in one line that Markdown shows as it is: no pictures of other servers, links, tags or cells."""
    signs = r"([\\`*\[\]|~]|(?<!\w)_|_(?!\w))"  # within a word Markdown takes _ as it is
    return re.sub(signs, r"\\\1", html.escape(" ".join(str(text).split()), quote=False))
