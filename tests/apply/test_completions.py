"""Completions of triples by a small trained model, against the scores of all triples one by one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
import torch

from configs.errors import DataError, RecipeError, UserError
from models.knowledge.base import KnowledgeModel, made_queries
from tasks.apply.completion import answers as completing
from tasks.apply.completion.answers import ASKED, Completer
from tasks.apply.completion.asked import CompletionRequest
from tasks.apply.completion.names import read_queries
from tasks.apply.model.files import write_model
from tasks.apply.vector_files.formats import ENDINGS
from tasks.apply.vector_files.neighbors import nearest
from tasks.arrays import Array
from tasks.inference.triples import TripleSplits
from tasks.ranking.triples import RankedTriples
from tasks.ranking.types import OF_RELATION, EntityTypes
from tasks.stage import Parent
from tasks.storage.graph_store import GraphStore
from tasks.storage.manifests import SPLITS
from tasks.train.embeddings.host_tables import HostEmbedding
from tasks.train.job import BEST
from tasks.train.state.checkpoint import load_model
from tests.apply.test_vector_formats import read as read_vectors
from tests.apply.test_worker import Case
from tests.finished import dataset
from tests.knowledge_graphs import planted_triples, triple_graph
from tests.train.knowledge_trainings import recipe, trained
from tests.train.test_knowledge import compared

N, DRUGS = 120, 50
RELATIONS = ["next", "previous", "fifth", "treats", "opposite of"]
TREATS = 3
"""A relation from drugs to genes in all training triples; the others are between all."""
UNSEEN = 33
"""Stands in no training triple."""
MODELS: dict[str, dict[str, Any]] = {
    "complex": {"name": "complex"},
    "both ways": {"name": "complex", "inverse_relations": True},
    "l2": {"name": "transe", "norm": "l2"},
    "scaled": {"name": "pairre"},
}


@dataclass
class Row:
    """A completion, as numbers."""

    query: int
    triple: tuple[int, int, int]
    rank: int
    score: float
    known: str | None


class Knowledge(Case):
    """A graph of drugs and genes in another order than its data has, and a model that was trained on it."""

    def __init__(self, folder: Path, model: dict[str, Any]) -> None:
        self.folder = folder
        triples, _ = planted_triples(N)
        tenth = len(triples) // 10
        splits = dict(zip(("valid", "test", "train"), np.split(triples, [tenth, 2 * tenth]), strict=True))
        self.dense = np.random.default_rng(5).permutation(N).astype(np.int64)
        heads, relations, tails = splits["train"].T
        treats = (self.dense[heads] < DRUGS) & (self.dense[tails] >= DRUGS)
        splits["train"] = splits["train"][(heads != UNSEEN) & (tails != UNSEEN) & ((relations != TREATS) | treats)]
        graph = triple_graph(folder / "graph", splits, N)
        np.save(graph.folder / "node_ids.npy", self.dense)
        types = {"node_types": ("drug", "gene"), "target_type": "drug", "type_offsets": (0, DRUGS, N)}
        self.graph = Parent(graph.manifest.model_copy(update=types), graph.folder)
        self.write()
        # x7 is a drug and a gene.
        typed = {"drug": [f"d{i}" for i in range(DRUGS)], "gene": [f"g{i}" for i in range(N - DRUGS)]}
        typed["drug"][7] = typed["gene"][7] = "x7"
        self.names = [f"{kind}:{name}" for kind, own in typed.items() for name in own]
        self.data = dataset(folder / "data", graph, typed=typed, relations=RELATIONS)
        train = {"epochs": 4, "eval_every": 2, "learning_rate": 0.1}
        trained(self.graph, folder / "train", recipe(model={"dim": 16, **model}, train=train))
        self.model_folder = folder / "model"
        write_model(self.model_folder, folder / "train" / BEST, "demo", {"name": "demo"}, {})
        self.splits = TripleSplits(GraphStore(self.graph.folder, self.graph.manifest))
        self.triples = {
            (int(head), int(relation), int(tail)): split
            for split in SPLITS
            for (head, tail), relation in zip(*self.of(split), strict=True)
        }

    def of(self, split: str) -> tuple[Array, Array]:
        part = self.splits.triples(split)
        return np.asarray(part.edges), part.relations

    @property
    def knowledge(self) -> KnowledgeModel:
        model = self.model
        assert isinstance(model, KnowledgeModel)
        return model

    def name(self, node: int) -> str:
        return self.names[self.dense[node]]

    def is_drug(self, node: int) -> bool:
        return bool(self.dense[node] < DRUGS)

    def scores(self) -> Array:
        """Of all triples as queries for tails and for heads: (2, N, R, N)."""
        model = self.knowledge
        table, found = model.table, np.empty((2, N, len(RELATIONS), N))
        nodes = torch.arange(N)
        with torch.no_grad():
            for relation in range(len(RELATIONS)):
                numbers = torch.full((N,), relation)
                for side, place in (("tail", 0), ("head", 1)):
                    made = made_queries(type(model), model.config, table[nodes], model.relations, numbers, side)  # type: ignore[arg-type]
                    scores = compared(model.config.similarity, made.vectors, table[nodes], made.scale).numpy()
                    found[place, :, relation] = scores if side == "tail" else scores.T
        return found

    def ask(self, **given: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.serve(asked=CompletionRequest(**given), is_shown=True)["completions"]
        return found


@pytest.fixture(scope="module", params=MODELS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Knowledge:
    return Knowledge(tmp_path_factory.mktemp("kg"), MODELS[request.param])


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Knowledge:
    return Knowledge(tmp_path_factory.mktemp("plain"), MODELS["both ways"])


def expected(case: Knowledge, query: tuple[int, int, int], k: int, *, mark: bool, types: str = "") -> list[Any]:
    """Completions of a query by the scores of all triples: triple, score and split; `types`: letters d and g."""
    tails, heads = case.scores()
    place = query.index(ASKED)
    types = types or ("dg" if query[1] != TREATS else "d" if place == 0 else "g")
    found = []
    for number in range(len(RELATIONS) if place == 1 else N):
        triple = tuple(number if one == ASKED else one for one in query)
        known = case.triples.get(triple)  # type: ignore[call-overload]
        counts = place == 1 or ("d" if case.is_drug(number) else "g") in types
        if (known is None or mark) and counts:
            found.append((triple, (heads if place == 0 else tails)[triple], known if mark else None))
    return sorted(found, key=lambda one: -one[1])[:k]


QUERIES = [
    (4, 0, ASKED),
    (ASKED, 3, 17),
    (9, ASKED, 10),
    (ASKED, 1, 88),
    (71, 2, ASKED),
    (5, ASKED, 22),
    (64, 4, ASKED),
]


def query_file(case: Knowledge, queries: list[tuple[int, int, int]], path: Path) -> Path:
    def text(one: int, place: int) -> str | None:
        return None if one == ASKED else RELATIONS[one] if place == 1 else case.name(one)

    columns = {name: [text(query[place], place) for query in queries] for place, name in enumerate(completing.ENDS)}
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize("mark", [False, True])
def test_completions_are_the_best_of_all(case: Knowledge, mark: bool) -> None:
    given = {"queries": query_file(case, QUERIES, case.folder / "q.parquet")}
    done = case.serve(given=given, asked=CompletionRequest(k=9, known="mark" if mark else None))
    rows = case.table().to_pylist()
    calibration = case.knowledge.calibration.double().numpy()
    assert (calibration != [1, 0]).all()
    place = 0
    for number, query in enumerate(QUERIES):
        wanted = expected(case, query, 9, mark=mark)
        own = rows[place : place + len(wanted)]
        place += len(wanted)
        assert [row["query"] for row in own] == [number] * len(wanted)
        assert [row["rank"] for row in own] == list(range(1, len(wanted) + 1))
        assert {row["asked"] for row in own} == {completing.ENDS[query.index(ASKED)]}
        for row, ((head, relation, tail), score, known) in zip(own, wanted, strict=True):
            names = case.name(head), RELATIONS[relation], case.name(tail)
            assert (row["head"], row["relation"], row["tail"]) == names
            assert row["score"] == pytest.approx(score, abs=1e-4)
            if query[1] == ASKED:
                assert row["probability"] is None, "fitted to entities that complete triples"
            else:
                slope, shift = calibration[query[1], 0 if query[0] == ASKED else 1]
                assert row["probability"] == pytest.approx(1 / (1 + np.exp(-(slope * score + shift))), abs=1e-4)
            assert row["known"] == known
    assert place == len(rows) == done["rows"]
    assert {row["known"] for row in rows} == ({None, "train", "valid", "test"} if mark else {None}) or mark


def test_a_query_on_the_command_line(plain: Knowledge) -> None:
    head = next(node for node in range(N) if plain.name(node) == "drug:d3")
    wanted = expected(plain, (head, 0, ASKED), 4, mark=False)
    for text in ("d3", "drug:d3"):
        found = plain.ask(head=text, relation="next", k=4)
        assert [row["tail"] for row in found] == [plain.name(triple[2]) for triple, *_ in wanted]
        assert {row["head"] for row in found} == {"drug:d3"}
    assert len(plain.ask(head="d3", relation="next")) == 10
    relations = plain.ask(head="d3", tail="g4", known="mark")
    assert sorted(row["relation"] for row in relations) == sorted(RELATIONS)


def test_small_batches_answer_the_same(plain: Knowledge, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"queries": query_file(plain, QUERIES, plain.folder / "q.parquet")}
    plain.serve(given=given)
    whole = plain.table()
    monkeypatch.setattr(completing, "_MOST_QUERIES", 2)
    monkeypatch.setattr(completing, "_PAIR_BYTES", 3 * 16 * 16)
    plain.serve(given=given)
    assert plain.table().equals(whole)
    queries = np.array([(head, 0, ASKED) for head in range(N)])
    small, large = (Completer(plain.knowledge, plain.splits, 10, memory=size) for size in (4096, 1 << 24))
    assert np.array_equal(small.answer(queries).triples, large.answer(queries).triples)
    assert small.at_once(asks_relations=True) == 2


# ---- names


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"head": "d333", "relation": "next"}, r"--head 'd333' is no entity of this graph \(did you mean 'd33'\?\)"),
        ({"head": "drug:d333", "relation": "next"}, r"did you mean 'drug:d33'"),
        ({"head": "gene:d3", "relation": "next"}, r"'gene:d3' is no entity"),
        (
            {"tail": "x7", "relation": "next"},
            "--tail 'x7' is an entity of several types; say which: drug:x7 or gene:x7",
        ),
        ({"head": "d3", "relation": "nxt"}, r"--relation 'nxt' is no relation of this graph \(did you mean 'next'\?\)"),
    ],
)
def test_unknown_names(plain: Knowledge, given: dict[str, str], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        plain.ask(**given)


def test_an_id_of_two_types_is_told_apart(plain: Knowledge) -> None:
    assert {row["head"] for row in plain.ask(head="gene:x7", relation="next")} == {"gene:x7"}


def test_what_training_never_saw_is_warned_of(plain: Knowledge) -> None:
    unseen = plain.name(UNSEEN)
    done = plain.serve(asked=CompletionRequest(head=unseen, relation="next"), is_shown=True)
    assert done["warnings"] == [
        f"head {unseen!r} is in no training triple: its row was never learnt, so these completions mean little"
    ]
    assert plain.serve(asked=CompletionRequest(head="d3", relation="next"), is_shown=True)["warnings"] == []
    given = {"queries": query_file(plain, [(4, 0, ASKED), (ASKED, 1, UNSEEN)], plain.folder / "unseen.parquet")}
    assert "tail" in plain.serve(given=given)["warnings"][0]


# ---- files of queries


def test_forms_of_files(plain: Knowledge) -> None:
    folder = plain.folder
    (folder / "mixed.csv").write_text("tail,note,head,relation\n,1,d3,next\ngene:g4,2,,treats\n")
    plain.serve(given={"queries": folder / "mixed.csv"}, asked=CompletionRequest(k=2))
    assert plain.table().column("asked").to_pylist() == ["tail"] * 2 + ["head"] * 2
    (folder / "two.tsv").write_text("head\trelation\nd3\tnext\ng4\ttreats\n")
    plain.serve(given={"queries": folder / "two.tsv"}, asked=CompletionRequest(k=2))
    assert plain.table().column("query").to_pylist() == [0, 0, 1, 1]
    plain.serve(given={"queries": folder / "two.tsv"}, asked=CompletionRequest(k=2), format="csv")
    told = pc.read_csv(folder / "work" / "predictions.csv")
    assert told.column_names == plain.table().column_names
    for name in ("head", "relation", "tail", "rank", "score"):
        assert told[name].to_pylist() == pytest.approx(plain.table()[name].to_pylist())


@pytest.mark.parametrize("cells", [pa.array([b"\xff"]), pa.array([["a"]]), pa.array([{"a": 1}])])
def test_names_that_are_no_texts(tmp_path: Path, cells: pa.Array) -> None:
    pq.write_table(pa.table({"head": cells, "relation": ["r"]}), tmp_path / "q.parquet")
    with pytest.raises(DataError, match=r"q\.parquet \(column head\): is (binary|list|struct).*; names are texts"):
        read_queries(tmp_path / "q.parquet")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("head,relation,tail\nd3,next,g4\n", r"\(row 0\): gives head, relation, tail: one of head, relation and tail"),
        ("head,relation,tail\nd3,next,\nd3,,\n", r"\(row 1\): gives head: one of"),
        ("head,other\nd3,next\n", "has the columns head, other; queries need head, relation and tail"),
        ("head,relation\n", "has no rows"),
        ("head,relation\nd3,next\nd4,nexst\n", r"\(row 1, column relation\): 'nexst' is no relation"),
        ("relation,tail\nnext,d3\nnext,q\n", r"\(row 1, column tail\): 'q' is no entity"),
        ("relation,tail\nnext,q\nnext,d3\nnext,p\nnext,q\n", r"\(row 0, .*'q' is no entity.*; not there either: p$"),
        ("head,relation\nd3,a\nd3,b\nd3,c\n", r"\(row 0, .*'a' is no relation.*; not there either: b, c$"),
        ("head,relation,type\nd3,next,\nd3,next,genes\n", r"\(row 1, column type\): 'genes' is no entity type.*'gene'"),
        ("head,tail,type\nd3,g4,gene\n", r"\(row 0, column type\): has a type, and a relation is asked for"),
    ],
)
def test_files_that_ask_nothing(plain: Knowledge, text: str, message: str) -> None:
    path = plain.folder / "wrong.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        plain.serve(given={"queries": path})


def test_whole_numbers_as_pandas_writes_them(tmp_path: Path) -> None:
    graph = triple_graph(tmp_path / "graph", num_entities=N)
    case = Knowledge.__new__(Knowledge)
    case.folder, case.graph = tmp_path, graph
    case.data = dataset(tmp_path / "data", graph, [10**12 + i for i in range(N)], relations=RELATIONS)
    trained(graph, tmp_path / "train", recipe(train={"epochs": 2, "eval_every": 2}))
    case.model_folder = tmp_path / "model"
    write_model(case.model_folder, tmp_path / "train" / BEST, "demo", {"name": "demo"}, {})
    queries = {"head": [1e12 + 3, None], "relation": ["next", "next"], "tail": [None, 1e12 + 5]}
    pq.write_table(pa.table(queries), tmp_path / "q.parquet")
    case.serve(given={"queries": tmp_path / "q.parquet"}, asked=CompletionRequest(k=1))
    table = case.table()
    assert table.column("head")[0].as_py() == 10**12 + 3
    assert table.column("tail")[1].as_py() == 10**12 + 5
    assert pa.types.is_integer(table.schema.field("head").type)
    for text in ("x", "7"):
        with pytest.raises(UserError, match="its ids are whole numbers"):
            case.ask(head=text, relation="next")
    (tmp_path / "nodes.csv").write_text("id\n1000000000003\n")
    assert case.serve("embeddings", given={"nodes": tmp_path / "nodes.csv"})["rows"] == 1


# ---- the model's files


def test_a_registered_model_is_the_checkpoint(case: Knowledge) -> None:
    own, published = load_model(case.folder / "train" / BEST), case.knowledge
    for name, weight in own.state_dict().items():
        assert torch.equal(weight, published.state_dict()[name]), name
    assert isinstance(own, KnowledgeModel)
    assert own.relations.abs().sum() > 0
    assert set(own.state_dict()) == {"encoder.embedding.weight", "relations", "calibration"}
    assert isinstance(published.encoder.embedding, HostEmbedding)
    queries = np.array([(head, relation, ASKED) for head in range(N) for relation in range(len(RELATIONS))])
    found = [Completer(model, case.splits, 5).answer(queries) for model in (own, published)]  # type: ignore[arg-type]
    assert np.array_equal(found[0].score, found[1].score)
    assert np.array_equal(found[0].triples, found[1].triples)


def test_other_data_is_refused(plain: Knowledge) -> None:
    with pytest.raises(RecipeError, match=r"complex learnt a vector for each of its 120 nodes \(encoder\.embedding\)"):
        plain.serve(asked=CompletionRequest(head="d3", relation="next"), own_graph=False)


# ---- exports


@pytest.mark.parametrize("format", ENDINGS)
def test_rows_of_entities_and_relations(plain: Knowledge, monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    monkeypatch.setattr("tasks.apply.worker._ROWS", 40)  # the first ones are of one type
    done = plain.serve("embeddings", format)
    ids, vectors = read_vectors(plain.folder / "work" / done["files"][0], format)
    assert ids == plain.names
    assert np.array_equal(vectors, plain.knowledge.table.numpy()[np.argsort(plain.dense)])
    done = plain.serve("embeddings", format, node_type="gene")
    assert done["rows"] == N - DRUGS
    ids, own = read_vectors(plain.folder / "work" / done["files"][0], format)
    assert ids[:3] == ["g0", "g1", "g2"]
    assert np.array_equal(own, vectors[DRUGS:])
    if format.startswith("word2vec"):
        with pytest.raises(DataError, match="'opposite of' is no word"):
            plain.serve("relations", format)
        return
    done = plain.serve("relations", format)
    assert (done["rows"], done["dim"]) == (2 * len(RELATIONS), 16)
    names, rows = read_vectors(plain.folder / "work" / done["files"][0], format)
    assert names == [*RELATIONS, *(f"{name}^-1" for name in RELATIONS)]
    assert np.array_equal(rows, plain.knowledge.relations.numpy())


def test_given_entities_and_their_neighbours(plain: Knowledge) -> None:
    (plain.folder / "some.csv").write_text("id\ndrug:x7\ng4\n")
    plain.serve("embeddings", given={"nodes": plain.folder / "some.csv"})
    assert plain.table("embeddings.parquet").column("id").to_pylist() == ["drug:x7", "gene:g4"]
    plain.serve("embeddings")
    [found] = nearest(plain.folder / "work" / "embeddings.parquet", ["drug:x7"], 3)
    assert len(found.ids) == 3
    (plain.folder / "some.csv").write_text("id\nx7\n")
    with pytest.raises(DataError, match=r"some\.csv \(row 0\): 'x7' is an entity of several types"):
        plain.serve("embeddings", given={"nodes": plain.folder / "some.csv"})


def test_one_type_of_entities(plain: Knowledge) -> None:
    for query in ((4, 0, ASKED), (ASKED, 3, 17)):
        given = {"queries": query_file(plain, [query], plain.folder / "typed.parquet")}
        for asked, types in (({"type": "drug"}, "d"), ({"type": "gene"}, "g"), ({"any_type": True}, "dg"), ({}, "")):
            plain.serve(given=given, asked=CompletionRequest(k=N, **asked))
            wanted = expected(plain, query, N, mark=False, types=types)
            end = completing.ENDS[query.index(ASKED)]
            assert plain.table().column(end).to_pylist() == [plain.name(one[0][query.index(ASKED)]) for one in wanted]
    with pytest.raises(RecipeError, match="--type 'drugs' is no entity type of this graph \\(did you mean 'drug'"):
        plain.ask(head="d3", relation="next", type="drugs")


def test_types_in_a_file_of_queries(plain: Knowledge) -> None:
    path = plain.folder / "types.csv"
    path.write_text("head,relation,type\nd3,next,gene\nd3,next,drug\nd3,treats,\n")
    plain.serve(given={"queries": path}, asked=CompletionRequest(k=5))
    table = plain.table().to_pylist()
    kinds = [{row["tail"].split(":")[0] for row in table if row["query"] == number} for number in range(3)]
    assert kinds == [{"gene"}, {"drug"}, {"gene"}]


def test_why_nothing_is_left(plain: Knowledge) -> None:
    asked = {"head": "d3", "relation": "treats"}
    tails = [tail for head, relation, tail in plain.triples if relation == TREATS and plain.name(head) == "drug:d3"]
    only = np.isin(np.arange(N), tails)  # all that count are known
    for given, message in (
        ({}, "no completion is left that is not a known triple; --known mark shows those, --any-type others"),
        ({"type": "gene"}, "no completion of type gene is left that is not a known triple; --known mark shows those, "),
        ({"type": "gene", "known": "mark"}, "no completion is left: the graph has no entity of type gene"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            nobody = np.zeros(N, np.bool_) if "known" in given else only
            patch.setattr(
                EntityTypes, "counted", lambda self, rows, *_, nobody=nobody: [(np.arange(len(rows)), nobody)]
            )
            [warning] = plain.serve(asked=CompletionRequest(**asked, **given), is_shown=True)["warnings"]
        assert message in warning


def test_a_relation_of_no_training_triple_has_had_no_type() -> None:
    train = RankedTriples(np.array([[0, 2], [1, 2]]), np.array([0, 0]))
    types = EntityTypes(np.array([0, 0, 1, 1]), 2, train, 2)
    found = list(types.counted(np.array([0, 1, 0]), np.array([OF_RELATION, OF_RELATION, 0]), "tail"))
    counted = {int(row): None if mask is None else mask.tolist() for rows, mask in found for row in rows}
    assert counted == {0: [False, False, True, True], 1: None, 2: [True, True, False, False]}
