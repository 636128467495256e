"""MkDocs hook: pages that are made at build time and never checked in, pictures, and READMEs of other folders."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from command_reference import commands_page
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from recipe_reference import component_page, recipe_page, shipped_page

from configs.registry import REGISTRIES

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent

GENERATED: dict[str, Callable[[], str]] = {
    "reference/commands.md": commands_page,
    "reference/recipe.md": recipe_page,
    "reference/shipped-recipes.md": shipped_page,
    **{f"reference/{page}.md": partial(component_page, page) for page in REGISTRIES},
}
INCLUDED = {
    "docker.md": "docker/README.md",
    "reference/tables.md": "tasks/ingest/README.md",
    "reference/benchmarks.md": "benchmarks/README.md",
}
_FILE = re.compile(r"^<!-- code: (\S+) -->$", re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)[^)]+\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and pictures that do not lie in `pages/`."""
    for place, make in GENERATED.items():
        files.append(File.generated(config, place, content=make()))
    for place, source in INCLUDED.items():
        files.append(File.generated(config, place, content=included(ROOT / source)))
    for picture in sorted(path for path in (HERE / "pictures").iterdir() if path.suffix in (".png", ".svg")):
        files.append(File.generated(config, f"pictures/{picture.name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Put code of the repository where a page names its file: `<!-- code: examples/damped_mean.py -->`."""
    return _FILE.sub(
        lambda match: f"```python\n{(ROOT / match[1]).read_text(encoding='utf-8').rstrip()}\n```", markdown
    )


def included(path: Path) -> str:
    """Return a README as a page: its links to files of the repository become their texts."""
    return _LINK.sub(r"\1", path.read_text(encoding="utf-8"))
