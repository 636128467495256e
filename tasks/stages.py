"""Runs a recipe's stages in this process, without Prefect and MLflow: `python -m tasks.stages RECIPE [KEY=VALUE...]`.

For machines that have neither, and for measuring. No run is recorded and nothing is published; artifacts are the same,
and lie in the home for a later `graphmill run`. What a stage took and came to is printed, a JSON line each.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path
from typing import Any

from configs.errors import UserError
from configs.load import load_recipe
from configs.schema import STAGES
from configs.trust import own_files
from tasks.calls import call_stage
from tasks.storage.artifacts import MANIFEST_NAME
from tasks.storage.home import Home
from tasks.storage.home_files.trusted_code import remember_in_home
from tasks.storage.manifests import Manifest
from tasks.train.prepared import check_labels

_RUN = STAGES[: STAGES.index("publish")]


def main(arguments: list[str] | None = None) -> int:
    """Run the stages; returns 2 where recipe or data are wrong."""
    parser = argparse.ArgumentParser(prog="python -m tasks.stages", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("recipe", help="a shipped recipe's name or a file")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--home", type=Path, help="as of graphmill; default: $GRAPHMILL_HOME or .graphmill")
    parser.add_argument("--until", choices=_RUN, default=_RUN[-1], metavar="STAGE", help=f"of {', '.join(_RUN)}")
    args = parser.parse_intermixed_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        home = Home.open(args.home)
        remember_in_home(home)
        with own_files():
            recipe = load_recipe(args.recipe, args.overrides)
        keys: dict[str, str] = {}
        for name in _RUN[: _RUN.index(args.until) + 1]:
            record = call_stage(name, recipe, home, keys)
            keys[name] = record.key
            print(json.dumps({name: {"status": record.status, **_facts(Path(record.folder))}}), flush=True)
            if name == "preprocess":
                check_labels(recipe, keys, home)
    except UserError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    return 0


def _facts(folder: Path) -> dict[str, Any]:
    """Return numbers, words and metrics of a manifest, but for what only names and verifies it."""
    manifest = json.loads((folder / MANIFEST_NAME).read_text(encoding="utf-8"))
    named = Manifest.model_fields.keys() - {"seconds", "peak_bytes"}
    return {
        name: value
        for name, value in manifest.items()
        if name not in named and (name == "metrics" or isinstance(value, int | float | str))
    }


if __name__ == "__main__":
    sys.exit(main())
