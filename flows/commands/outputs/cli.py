"""Commands that write what a model or a recipe makes: predictions, exports, neighbours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from flows.terminal.options import HomeOption, JsonOption, TrustOption, VerboseOption, global_options, open_home

if TYPE_CHECKING:
    from flows.commands.outputs.use import UseRequest
    from tasks.storage.home import Home

app = typer.Typer()

ModelOption = Annotated[
    str, typer.Option("--model", "-m", metavar="NAME@VERSION", help="Registered model: NAME@champion, NAME@3.")
]
OutputOption = Annotated[
    str | None, typer.Option("--output", "-o", metavar="FILE", help="File to write; its ending says the format.")
]
NodesOption = Annotated[
    str | None, typer.Option("--nodes", metavar="FILE", help="File of node ids (Parquet, CSV, .txt); default: all.")
]
EdgesOption = Annotated[
    str | None,
    typer.Option("--edges", metavar="FILE", help="Edge tasks: file of edge_id, or of row in the table; default: all."),
]
GraphsOption = Annotated[str | None, typer.Option("--graphs", metavar="FILE", help="File of graph ids; default: all.")]
PairsOption = Annotated[
    str | None,
    typer.Option("--pairs", metavar="FILE", help="File of source and target ids (link models; or --nodes: sources)."),
]
FormatOption = Annotated[
    str | None,
    typer.Option("--format", metavar="parquet|csv|csv.gz|npy", help="Default: by the output's ending, or parquet."),
]
ThresholdOption = Annotated[
    str | None,
    typer.Option(
        "--threshold",
        metavar="P|CLASS=P|none",
        help="Predict class 1, or the class named, from this probability on; none: the likeliest class.",
        show_default="the model's own, which evaluate.threshold chose, else none",
    ),
]
SplitOption = Annotated[
    str | None,
    typer.Option(
        "--split",
        metavar="none",
        help="none: score all rows and call none of them one of a split; a recipe's tables need no labels then.",
        show_default="as the data set deals rows out",
    ),
]
HeadOption = Annotated[str | None, typer.Option("--head", metavar="ID", help="Head of triples to complete.")]
RelationOption = Annotated[str | None, typer.Option("--relation", metavar="NAME", help="Their relation.")]
TailOption = Annotated[str | None, typer.Option("--tail", metavar="ID", help="Their tail. Two of the three are given.")]
QueriesOption = Annotated[
    str | None,
    typer.Option("--queries", metavar="FILE", help="File of head, relation and tail, one of them empty in each row."),
]
MostOption = Annotated[
    int | None,
    typer.Option("-k", min=1, help="Completions of each triple, or targets of each node.", show_default="10"),
]
KnownOption = Annotated[
    str | None, typer.Option("--known", metavar="leave-out|mark", help="Triples of the data.", show_default="leave-out")
]
TypeOption = Annotated[
    str | None,
    typer.Option(
        "--type",
        metavar="TYPE",
        help="Complete by entities of this type.",
        show_default="those that the relation has had",
    ),
]
AnyTypeOption = Annotated[bool | None, typer.Option("--any-type", help="Complete by entities of all types.")]
KeepOption = Annotated[
    bool,
    typer.Option(
        "--keep-layers",
        help="Keep all layers' outputs, and compute only what changed since an earlier graph's were kept.",
    ),
]
DataArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="RECIPE|KEY=VALUE", help="Recipe of other data, and changes; default: the training's own."),
]
ExportedArgument = Annotated[
    Literal["embeddings", "relations", "predictions", "model", "graph"], typer.Argument(help="What to export.")
]
ExportedModelOption = Annotated[
    str | None,
    typer.Option("--model", "-m", metavar="NAME@VERSION", help="Registered model: NAME@champion, NAME@3; no graph's."),
]
ExportFileOption = Annotated[
    str | None,
    typer.Option("--output", "--out", "-o", metavar="FILE", help="File to write; its ending says the format."),
]
NodeTypeOption = Annotated[
    str | None, typer.Option("--node-type", metavar="TYPE", help="Embeddings: of which nodes, if types differ.")
]
ExportFormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="parquet or npy, of vectors safetensors, word2vec and word2vec-binary too; of the model files or "
        "safetensors; of a graph dgl or pyg.",
    ),
]


def recipe_and_overrides(words: list[str] | None) -> tuple[str | None, list[str]]:
    """Tell a recipe's name from `key=value` texts. Raises RecipeError for two names."""
    from configs.errors import RecipeError

    names = [word for word in words or () if "=" not in word]
    if len(names) > 1:
        raise RecipeError(f"one recipe at most, not {' and '.join(names)}; changes are of the form section.key=value")
    return (names[0] if names else None), [word for word in words or () if "=" in word]


def _show_written(facts: list[tuple[str, str]], record: dict[str, Any], as_json: bool) -> None:
    from flows.commands.outputs.use import show_completions
    from flows.terminal.console import err, out, print_facts

    for told in record.get("explained", ()) if not as_json else ():
        lines = [told["head"], *(f"  {text}" for text in told["sentences"]), *(f"  ({text})" for text in told["notes"])]
        out().print("\n".join(lines), markup=False)
    completions = record.get("completions")
    if completions is not None and not as_json:
        show_completions(record["asked"], completions)
    print_facts(err() if as_json or completions is not None else out(), facts, width=11)
    if as_json:
        print(json.dumps(record), flush=True)


@app.command()
def predict(
    context: typer.Context,
    model: ModelOption,
    data: DataArgument = None,
    nodes: NodesOption = None,
    edges: EdgesOption = None,
    pairs: PairsOption = None,
    graphs: GraphsOption = None,
    head: HeadOption = None,
    relation: RelationOption = None,
    tail: TailOption = None,
    queries: QueriesOption = None,
    k: MostOption = None,
    known: KnownOption = None,
    type: TypeOption = None,
    any_type: AnyTypeOption = None,
    output: OutputOption = None,
    format: FormatOption = None,
    threshold: ThresholdOption = None,
    split: SplitOption = None,
    keep_layers: KeepOption = False,
    trust_code: TrustOption = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Predict with a registered model, for its own data, a newer snapshot or another data set of the same kind.

    A model of a knowledge graph completes triples: two of `--head`, `--relation`, `--tail`, or `--queries`.

    Examples: `graphmill predict --model quickstart@champion`;
    `graphmill predict -m papers@champion papers.yaml snapshot.as_of=2026-11 --nodes new.csv -o new.parquet`;
    `graphmill predict -m payments@champion today.yaml --split none --threshold fraud=0.3 -o today.csv`;
    `graphmill predict -m knowledge-graph@champion --head 17 --relation r3 -k 5`
    """
    from flows.commands.outputs.use import UseRequest
    from flows.records.use_options import UseOptions

    recipe, overrides = recipe_and_overrides(data)
    options = UseOptions(**{name: context.params[name] for name in UseOptions.model_fields if name in context.params})
    request = UseRequest(model, "predictions", options, recipe, overrides)
    _use(open_home(home, trust_code or []), request, verbose, as_json)


@app.command()
def export(
    what: ExportedArgument,
    model: ExportedModelOption = None,
    data: DataArgument = None,
    nodes: NodesOption = None,
    graphs: GraphsOption = None,
    node_type: NodeTypeOption = None,
    output: ExportFileOption = None,
    format: ExportFormatOption = None,
    trust_code: TrustOption = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Export a registered model's vectors or predictions under your ids, or the model itself; or a graph.

    `graph` takes a recipe or a run and writes its preprocessed graph for DGL (.bin) or PyG (.pt): features, labels,
    masks, edge data and your ids, by types of nodes and edges. The data sets `dgl` and `pyg` read it.

    Examples: `graphmill export embeddings --model quickstart@champion -o vectors.npy`;
    `graphmill export model --model quickstart@3 -o model.safetensors`;
    `graphmill export graph quickstart --format dgl -o graph.bin`
    """
    from configs.errors import RecipeError
    from flows.commands.outputs.use import UseRequest
    from flows.records.use_options import UseOptions

    recipe, overrides = recipe_and_overrides(data)
    if what == "graph":
        of_model = {"model": model, "nodes": nodes, "graphs": graphs, "node-type": node_type}
        wrong = [name for name, value in of_model.items() if value is not None]
        if wrong:
            raise RecipeError(f"--{wrong[0]} is for what a model makes; export graph takes a recipe or a run")
        from flows.commands.outputs.graph_export import export_graph

        verbose = verbose or global_options.verbose
        record = export_graph(open_home(home, trust_code or []), recipe, overrides, output, format, verbose=verbose)
        sizes = ", ".join(f"{record[name]:,} {name}" for name in ("nodes", "edges", "graphs"))
        _show_written([("graph", record["output"]), ("of", f"{record['source']}: {sizes}")], record, as_json)
        return
    if model is None:
        raise RecipeError(f"export {what}: name the registered model: --model NAME@champion (graphmill versions)")
    options = UseOptions(output=output, format=format, nodes=nodes, graphs=graphs, node_type=node_type)
    request = UseRequest(model, what, options, recipe, overrides)
    _use(open_home(home, trust_code or []), request, verbose, as_json)


@app.command()
def explain(
    model: ModelOption,
    data: DataArgument = None,
    node: Annotated[
        list[str] | None, typer.Option("--node", "--row", metavar="ID", help="Node or row; may stand several times.")
    ] = None,
    nodes: Annotated[str | None, typer.Option("--nodes", "--rows", metavar="FILE", help="File of ids.")] = None,
    edge: Annotated[
        list[str] | None,
        typer.Option("--edge", metavar="ID", help="Labelled edge by its id, or SOURCE,TARGET[,ROW]; several times."),
    ] = None,
    edges: EdgesOption = None,
    pair: Annotated[
        tuple[str, str] | None, typer.Option("--pair", metavar="SOURCE TARGET", help="Of a model of links.")
    ] = None,
    pairs: PairsOption = None,
    triple: Annotated[
        tuple[str, str, str] | None,
        typer.Option("--triple", metavar="HEAD RELATION TAIL", help="Of a model of a knowledge graph."),
    ] = None,
    triples: Annotated[
        str | None, typer.Option("--triples", metavar="FILE", help="File of head, relation and tail.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            metavar="NAME",
            help="`graphmill explainers` lists them; evaluate.explain.OPTION=... sets their options.",
            show_default="removal",
        ),
    ] = None,
    of_class: Annotated[
        str | None,
        typer.Option("--class", metavar="NAME", help="Whose probability is explained.", show_default="the predicted"),
    ] = None,
    output: OutputOption = None,
    trust_code: TrustOption = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Explain scores: which edges, neighbours and features moved them. Writes Parquet and a page beside it.

    Examples: `graphmill explain --model accounts@champion --node acc-0123`;
    `graphmill explain -m accounts@champion --nodes asked.csv --method integrated evaluate.explain.steps=100`;
    `graphmill explain -m friends@champion --pair ann bob -o why.parquet`
    """
    from flows.commands.outputs.use import UseRequest
    from flows.records.use_options import UseOptions

    recipe, overrides = recipe_and_overrides(data)
    named = {"nodes": node, "edges": edge, "pairs": pair and [pair], "triples": triple and [triple]}
    asked: dict[str, Any] = {name: values or [] for name, values in named.items()} | {"of_class": of_class}
    options = UseOptions(output=output, nodes=nodes, edges=edges, pairs=pairs, triples=triples, explained=asked)
    overrides = [*([f"evaluate.explain.name={method}"] if method else []), *overrides]
    request = UseRequest(model, "explanations", options, recipe, overrides)
    _use(open_home(home, trust_code or []), request, verbose, as_json)


def _use(home: Home, request: UseRequest, verbose: bool, as_json: bool) -> None:
    from flows.apply.model_use import describe_record
    from flows.commands.outputs.use import use_model

    record = use_model(home, request, verbose=verbose or global_options.verbose)
    _show_written(describe_record(record), record, as_json)


@app.command()
def neighbors(
    embeddings: Annotated[
        Path, typer.Option("--embeddings", "-e", metavar="FILE", help="From `graphmill export embeddings`, any format.")
    ],
    node: Annotated[
        list[str] | None, typer.Option("--node", metavar="ID", help="Whose neighbours; may stand several times.")
    ] = None,
    nodes: Annotated[Path | None, typer.Option("--nodes", metavar="FILE", help="File of ids.")] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="How many of each.")] = 10,
    metric: Annotated[Literal["cosine", "dot"], typer.Option("--metric", help="Angle, or product.")] = "cosine",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write node, rank, id, score as Parquet.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find the nearest of exported vectors, exactly: rank, id and score.

    Examples: `graphmill neighbors --embeddings vectors.npy --node 17 -k 10`;
    `graphmill neighbors -e vectors.parquet --nodes asked.csv -o near.parquet`
    """
    from flows.commands.outputs.neighbors import find_neighbors, neighbor_json, show_neighbors, write_neighbors

    batches = find_neighbors(embeddings, node or [], nodes, k, metric)
    if output is not None:
        print(f"{write_neighbors(batches, output):,} rows  {output}")
    elif as_json:
        print(json.dumps(neighbor_json(batches)))
    else:
        show_neighbors(batches)
