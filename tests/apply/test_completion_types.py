"""Which types of entities complete a triple, and what is said where none does."""

from __future__ import annotations

import numpy as np
import pytest

from configs.errors import RecipeError
from tasks.apply.completion import answers as completing
from tasks.apply.completion.answers import ASKED
from tasks.apply.completion.asked import CompletionRequest
from tasks.ranking.triples import RankedTriples
from tasks.ranking.types import OF_RELATION, EntityTypes
from tests.apply.test_completions import MODELS, TREATS, Knowledge, N, expected, query_file


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Knowledge:
    return Knowledge(tmp_path_factory.mktemp("plain"), MODELS["both ways"])


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
