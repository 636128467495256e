"""`graphmill layout`: look at vectors, at a graph, or at what a model has learnt."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from flows.terminal.options import HomeOption, JsonOption, TrustOption, VerboseOption, global_options, open_home

if TYPE_CHECKING:
    from configs.schema import Recipe
    from flows.records.run_record import RunRecord
    from tasks.storage.home import Home

app = typer.Typer()

VECTOR_RECIPE = "largevis"
"""What lays out a file of vectors."""
_VECTOR_FILES = (".npy", ".npz", ".parquet", ".csv", ".tsv", ".csv.gz", ".tsv.gz", "-ubyte", "-ubyte.gz")
_OPTION_OF_MODEL = re.compile(r"\s*model\.(?!(name|file)\s*=)")
_ENDINGS = (".html", ".parquet", ".png", ".svg")

SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="FILE|RECIPE|NAME@VERSION",
        help="Vectors (.npy, .npz, .parquet, .csv, idx), a recipe, or a registered model: NAME@champion.",
    ),
]
OverridesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Dotted overrides, such as preprocess.neighbors.k=30.")
]
MethodOption = Annotated[
    Literal["largevis", "umap", "tsne"] | None, typer.Option("--method", help="How points are laid out.")
]
DimOption = Annotated[int | None, typer.Option("--dim", min=2, max=3, help="Dimensions of the picture.")]
ColorOption = Annotated[str | None, typer.Option("--color", metavar="COLUMN", help="What colours the map first.")]
OutputOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--output",
        "--out",
        "-o",
        metavar="FILE",
        help="File to write: .html (the map), .parquet (coordinates), .png or .svg; may stand several times. Default: "
        "NAME.map.html here.",
    ),
]


@app.command()
def layout(
    source: SourceArgument,
    overrides: OverridesArgument = None,
    method: MethodOption = None,
    dim: DimOption = None,
    color: ColorOption = None,
    output: OutputOption = None,
    trust_code: TrustOption = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Look at vectors, a graph, or a model: one page to pan, zoom, search and colour, that works offline.

    Examples: `graphmill layout vectors.npy`; `graphmill layout vectors.parquet --method umap --color label -o map.svg`;
    `graphmill layout graph-layout dataset=edges.csv`; `graphmill layout papers@champion`
    """
    from flows.commands.recipes.run import RunRequest
    from flows.commands.recipes.run import run as execute
    from flows.terminal.console import err, out, print_facts

    place = open_home(home, trust_code or [])
    if "@" in source and not Path(source).exists():
        options = {"method": method, "dim": dim, "color": color}
        given = {name: value for name, value in options.items() if value is not None}
        written = show_model(place, source, list(overrides or ()), given, output, verbose=verbose, as_json=as_json)
    else:
        recipe, texts, name = recipe_of(source, list(overrides or ()), method, dim, color)
        outputs = places(output, name)
        request = RunRequest(recipe, texts, as_json=as_json, verbose=verbose or global_options.verbose)
        record = execute(place, request)
        written = [] if record is None else [copy_of(record, path) for path in outputs]
    print_facts(err() if as_json else out(), [("written", str(path)) for path in written])


def show_model(
    home: Home,
    model: str,
    words: list[str],
    options: dict[str, Any],
    output: list[Path] | None,
    *,
    verbose: bool,
    as_json: bool,
) -> list[Path]:
    """Lay out what a registered model has learnt, and return the files that show it. Raises UserError."""
    import pyarrow.parquet as pq

    from flows.commands.outputs.cli import recipe_and_overrides
    from flows.commands.outputs.use import UseRequest, use_model
    from flows.records.use_options import UseOptions
    from tasks.publish.map.of_run import map_points, write_picture

    outputs = places(output, model.replace("@", "-"))
    recipe, overrides = recipe_and_overrides(words)
    with tempfile.TemporaryDirectory() as folder:
        points = Path(folder) / "points.parquet"
        asked = UseOptions(output=str(points), layout=options)
        request = UseRequest(model, "layout", asked, recipe, overrides)
        record = use_model(home, request, verbose=verbose or global_options.verbose)
        title = f"{record['model']} version {record['version']}"
        shown = map_points(pq.read_table(points), title, color=options.get("color", ""))
        for path in outputs:
            if path.suffix == ".parquet":
                put(points, path)
            else:
                write_picture(shown, path)
    if as_json:
        print(json.dumps({**record, "output": [str(path) for path in outputs]}), flush=True)
    return outputs


def places(output: list[Path] | None, name: str) -> list[Path]:
    """Return the files to write, each of which can be. Raises RecipeError before all the work."""
    from configs.errors import RecipeError
    from configs.source_files import user_path
    from tasks.apply.run import check_place
    from tasks.storage.file_names import file_name

    paths = [user_path(path).resolve() for path in output or [Path(file_name(name) + ".map.html")]]
    paths = list(dict.fromkeys(paths))
    for path in paths:
        if path.suffix not in _ENDINGS:
            raise RecipeError(f"--output {path.name} must end with {', '.join(_ENDINGS[:-1])} or {_ENDINGS[-1]}")
        check_place(str(path), path)
    return paths


def copy_of(record: RunRecord, path: Path) -> Path:
    """Copy what a run has of an ending to a file, whole or not at all, and return it."""
    from configs.errors import RecipeError
    from tasks.kinds.points import LAYOUT_FILE

    if not record.map:
        raise RecipeError(f"there is no map, so {path.name} was not written: {record.report} says why in its notes")
    if path.suffix == ".parquet":
        source = Path(record.stages["evaluate"].folder) / LAYOUT_FILE
    else:
        source = Path(record.map).with_suffix(path.suffix)
    put(source, path)
    return path


def put(source: Path, path: Path) -> None:
    """Copy a file, whole or not at all."""
    from tasks.storage.artifacts import atomic_file, output_errors

    with source.open("rb") as content, output_errors(path.absolute()), atomic_file(path) as file:
        shutil.copyfileobj(content, file)


def recipe_of(
    source: str, overrides: list[str], method: str | None, dim: int | None, color: str | None
) -> tuple[str, list[str], str]:
    """Return the recipe, overrides and name that show a source: a file of vectors, or a recipe. Raises RecipeError."""
    from configs.load import load_own_recipe

    if source.lower().endswith(_VECTOR_FILES):
        named = any(text.startswith("name=") for text in overrides)
        title = name_of(source)
        dataset = ["dataset=vectors", f"dataset.files=[{quoted(source)}]", f"dataset.title={quoted(title)}"]
        dataset += [] if named else [f"name={quoted(title)}"]
        source, overrides = VECTOR_RECIPE, [*dataset, *overrides]
    # What kind of model it is: its options may be those of --method's model.
    recipe: Recipe = load_own_recipe(source, [text for text in overrides if not _OPTION_OF_MODEL.match(text)])
    section = "model" if recipe.is_layout else "evaluate.layout"
    wanted = {"name" if section == "model" else "method": method, "dim": dim}
    options = [f"{section}.{key}={quoted(value)}" for key, value in wanted.items() if value is not None]
    if section != "model" and not options and recipe.evaluate.layout is None:
        options = ["evaluate.layout.method=largevis"]
    options += [] if color is None else [f"evaluate.layout.color={quoted(color)}"]
    return source, [*overrides, *options], recipe.name


def quoted(value: str | int) -> str:
    """Return a value as overrides are read: a column `no`, or a file `a, b.npy`, is one text."""
    return json.dumps(value, ensure_ascii=False)


def name_of(source: str) -> str:
    """Return a recipe's name for a file: what the file is called."""
    stem = re.sub(r"(\.(npy|npz|parquet|csv|tsv|gz))+$", "", Path(source).name, flags=re.IGNORECASE)
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).lstrip("._-")[:100] or VECTOR_RECIPE
