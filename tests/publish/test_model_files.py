from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from configs.errors import IntegrityError, RecipeError
from configs.registry import MODELS
from configs.training import TrainConfig
from models.facts import GraphFacts
from tasks.apply.model.files import load_published, read_tensors, tensor_shapes, write_model, write_tensors
from tasks.apply.model.needs import refuse_node_embeddings
from tasks.train.embeddings.host_tables import HostEmbedding, SparseEmbedding
from tasks.train.state.checkpoint import best_state, save_atomic
from tasks.train.strategies.base import Ranks


def test_tensors_of_all_kinds_come_back(tmp_path: Path) -> None:
    tensors = {
        "scalar": torch.tensor(7),
        "empty": torch.zeros(0, 3),
        "half": torch.randn(3, 2).half(),
        "brain": torch.randn(5).bfloat16(),
        "flags": torch.tensor([True, False]),
        "turned": torch.arange(6.0).reshape(2, 3).T,
    }
    assert write_tensors(tmp_path / "x.safetensors", tensors, ("format", "pt")) == 1 + 0 + 6 + 5 + 2 + 6
    back = read_tensors(tmp_path / "x.safetensors")
    assert set(back) == set(tensors)
    for name, tensor in tensors.items():
        assert back[name].dtype == tensor.dtype
        assert torch.equal(back[name], tensor)
    back["half"].zero_()
    assert torch.equal(read_tensors(tmp_path / "x.safetensors")["half"], tensors["half"])  # the file stays as it is


def test_equal_weights_make_equal_files_as_open_as_others(tmp_path: Path) -> None:
    tied = torch.ones(2)
    for name in ("x", "y"):
        write_tensors(tmp_path / name, {"b": tied, "a": tied, "c": tied[1:]}, ("format", "pt"))
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes()
    assert {name: len(tensor) for name, tensor in read_tensors(tmp_path / "x").items()} == {"a": 2, "b": 2, "c": 1}
    (tmp_path / "z").touch()
    assert (tmp_path / "x").stat().st_mode == (tmp_path / "z").stat().st_mode
    assert {path.name for path in tmp_path.iterdir()} == {"x", "y", "z"}


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_tensors(path, {"a": torch.ones(4)}, ("format", "pt"))
    whole = path.read_bytes()
    for damaged in (b"", whole[:4], whole[:-1], b"\xff" * 8 + whole[8:], whole[:8] + b"!" + whole[9:], whole + b"x"):
        path.write_bytes(damaged)
        for read in (read_tensors, tensor_shapes):
            with pytest.raises(IntegrityError, match="not a whole safetensors file"):
                read(path)


def test_a_model_is_rebuilt_from_its_files(tmp_path: Path) -> None:
    config = MODELS.config({"name": "graphsage", "hidden_dim": 8, "num_layers": 2})
    model = MODELS.create(config, GraphFacts(task="node", out_dim=3, num_nodes=10, feature_dim=4))
    save_atomic(best_state(model, "digest", 1, 0.5), tmp_path / "best.pt")
    count = write_model(tmp_path / "model", tmp_path / "best.pt", "demo", {"name": "demo"}, {"train": {}})
    assert count == sum(tensor.numel() for tensor in model.state_dict().values())
    names = {path.name for path in (tmp_path / "model").iterdir()}
    assert names == {"model.safetensors", "model.json", "recipe.json", "lineage.json", "README.md"}
    back = load_published(tmp_path / "model")
    assert not back.training
    for name, tensor in model.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor)
    assert back.config == model.config


@pytest.mark.parametrize("facts", [{"out_dim": 0}, {"feature_dim": -1}, {"num_nodes": 2**41}, {"categories": [2**41]}])
def test_a_model_of_no_graph_is_refused(tmp_path: Path, facts: dict[str, Any]) -> None:
    model = MODELS.create(MODELS.config("gcn"), GraphFacts(task="node", out_dim=3, num_nodes=10, feature_dim=4))
    save_atomic(best_state(model, "digest", 1, 0.5), tmp_path / "best.pt")
    write_model(tmp_path / "m", tmp_path / "best.pt", "m", {}, {})
    described = json.loads((tmp_path / "m" / "model.json").read_text())
    (tmp_path / "m" / "model.json").write_text(json.dumps(described | {"facts": described["facts"] | facts}))
    with pytest.raises(IntegrityError, match="no graph has"):
        load_published(tmp_path / "m")


def test_a_table_of_sparse_embeddings_stays_in_memory(tmp_path: Path) -> None:
    config = MODELS.config({"name": "graphsage", "hidden_dim": 8, "num_layers": 2})
    model = MODELS.create(config, GraphFacts(task="node", out_dim=3, num_nodes=10, feature_dim=0))
    train = TrainConfig(epochs=1, embeddings="sparse")
    model.encoder.embedding = SparseEmbedding(10, 8, train, Ranks(), seed=0)
    save_atomic(best_state(model, "digest", 1, 0.5), tmp_path / "best.pt")
    write_model(tmp_path / "model", tmp_path / "best.pt", "demo", {"name": "demo"}, {"train": {}})
    back = load_published(tmp_path / "model")
    table = back.encoder.embedding
    assert isinstance(table, HostEmbedding)  # so it follows the model to no device
    assert torch.equal(table.weight, model.encoder.embedding.weight)
    assert "encoder.embedding.weight" not in dict(back.named_parameters())
    with pytest.raises(RecipeError, match="learnt a vector for each of its 10 nodes"):
        refuse_node_embeddings(back)
    write_tensors(tmp_path / "model" / "model.safetensors", {}, ("format", "pt"))
    with pytest.raises(IntegrityError, match="does not fit"):
        load_published(tmp_path / "model")
