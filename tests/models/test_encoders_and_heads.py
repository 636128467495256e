"""Encoders, heads and losses on small fixed numbers."""

from __future__ import annotations

import pytest
import torch

from models.block import Block, Inputs
from models.facts import GraphFacts
from models.layers.encoders import CategoryEmbedding, EdgeEncoder, NodeEncoder, TypedLinear
from models.layers.output_heads import LinkHead
from models.losses.chosen import loss_of


def test_category_embedding_adds_its_columns_up() -> None:
    encoder = CategoryEmbedding((3, 2, 4), 5)
    codes = torch.tensor([[0, 0, 0], [2, 1, 3], [1, 0, 2]])
    expected = encoder.table[codes[:, 0]] + encoder.table[3 + codes[:, 1]] + encoder.table[5 + codes[:, 2]]
    torch.testing.assert_close(encoder(codes), expected)


def test_node_encoder_in_all_its_forms() -> None:
    feat, codes = torch.randn(4, 3), torch.tensor([[0], [1], [1], [0]])
    inputs = Inputs(torch.tensor([5, 0, 5, 2]), feat, codes)
    plain = NodeEncoder(GraphFacts("node", 2, 9, feature_dim=3), 6, project=False)
    assert plain.out_dim == 3
    assert plain(inputs) is feat
    both = NodeEncoder(GraphFacts("node", 2, 9, feature_dim=3, categories=(2,)), 6, project=False)
    assert both.linear is not None
    torch.testing.assert_close(both(inputs), both.linear(feat) + both.categories.table[codes[:, 0]])
    learnt = NodeEncoder(GraphFacts("node", 2, 9), 6, project=True)
    torch.testing.assert_close(learnt(inputs), learnt.embedding.weight[inputs.node_ids])
    shared = NodeEncoder(GraphFacts("graph", 2, 9), 6, project=True)  # unseen graphs' nodes have no rows of their own
    assert torch.equal(shared(inputs), shared(inputs)[:1].expand(4, -1))


@pytest.mark.parametrize("labels", [0, 2])
def test_types_of_nodes_have_maps_of_their_own(labels: int) -> None:
    facts = GraphFacts("node", 2, 9, feature_dim=3, categories=(2,))
    encoder = NodeEncoder(facts, 6, project=False, labels=labels, node_types=4)
    node_type, codes = torch.tensor([2, 0, 2, 0, 3]), torch.tensor([[0], [1], [1], [0], [0]])  # none of type 1
    feat = torch.randn(5, 3)
    known = torch.tensor([1, -1, 0, 0, -1]) if labels else None
    inputs = Inputs(torch.arange(5), feat, codes, known, node_type)
    assert isinstance(encoder.linear, TypedLinear)
    assert encoder.categories is not None
    for bias in [each.bias for each in encoder.linear.maps]:
        torch.nn.init.normal_(bias)  # type: ignore[arg-type]
    encoded = encoder(inputs)
    one_hot = torch.tensor([[0, 1], [0, 0], [1, 0], [1, 0], [0, 0]])
    rows = torch.cat([feat, one_hot], 1) if labels else feat
    for row in range(5):
        expected = encoder.linear.maps[node_type[row]](rows[row : row + 1])[0] + encoder.categories.table[codes[row, 0]]
        torch.testing.assert_close(encoded[row], expected)
    encoded.sum().backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())  # as DDP wants
    one_type = NodeEncoder(facts, 6, project=False, node_types=1)
    assert not isinstance(one_type.linear, TypedLinear)


def test_edge_encoder_with_numbers_only() -> None:
    encoder = EdgeEncoder(GraphFacts("graph", 1, 1, edge_feature_dim=2), 4)
    feat = torch.randn(3, 2)
    block = Block(torch.tensor([0, 3]), torch.tensor([0, 0, 0]), 1, edge_feat=feat)
    torch.testing.assert_close(encoder(block, torch.float32), feat @ encoder.linear.weight.T + encoder.linear.bias)  # type: ignore[union-attr]


def test_link_heads() -> None:
    u, v = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, -1.0]])
    assert LinkHead(2, 2, "dot", 3, 0.0).score(u, v).tolist() == [1.0]
    mlp = LinkHead(2, 2, "mlp", 1, 0.0)
    mlp.mlp[0].weight.data = torch.tensor([[1.0, 10.0]])  # type: ignore[union-attr]
    mlp.mlp[0].bias.data.zero_()  # type: ignore[union-attr,operator]
    assert mlp.score(u, v).tolist() == [-17.0]
    assert torch.equal(mlp.score(u, v), mlp.score(v, u))


def test_losses_leave_missing_labels_out() -> None:
    softplus = torch.nn.functional.softplus
    scores, nan = torch.tensor([[2.0, -1.0], [0.5, 0.5]]), float("nan")
    target, pairs = torch.tensor([[1.0, nan], [nan, 0.0]]), torch.tensor([1.0, -1.0, 3.0])
    for kind, given, labels, expected in (
        ("multilabel", scores, target, (softplus(torch.tensor(-2.0)) + softplus(torch.tensor(0.5))) / 2),
        ("regression", scores, target, torch.tensor((1.0 + 0.25) / 2)),
        ("multiclass", scores, torch.tensor([0, -1]), softplus(torch.tensor(-3.0))),
        ("link", pairs, torch.tensor([1.0, 0, 0]), (softplus(-pairs[0]) + softplus(pairs[1:]).mean()) / 2),
    ):
        torch.testing.assert_close(loss_of(kind)(given, labels, 1), expected)


@pytest.mark.parametrize("kind", ["multiclass", "binary", "multilabel", "regression"])
def test_a_batch_without_any_label_has_a_gradient_of_zero(kind: str) -> None:
    """Ranks of a job wait for each other's gradients, so there has to be one."""
    scores = torch.tensor([[7.0, 9.0]], requires_grad=True)
    loss = loss_of(kind)(scores, torch.tensor([-1]) if kind == "multiclass" else torch.full((1, 2), torch.nan), 1)
    loss.backward()
    assert loss.item() == 0
    assert not scores.grad.any()


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_tables_of_combinations_hold_every_edge(kind: torch.dtype) -> None:
    encoder = EdgeEncoder(GraphFacts("graph", 1, 1, edge_categories=(5, 1, 3)), 7)
    assert encoder.categories is not None
    every = torch.tensor([[a, 0, c] for a in range(5) for c in range(3)]).flip(0)
    block = Block(torch.tensor([0, 15]), torch.zeros(15, dtype=torch.int32), 1, edge_feat_cat=every)
    with torch.autocast("cpu", torch.bfloat16, enabled=kind == torch.bfloat16):
        table, codes = encoder(block, kind)
    assert (table.dtype, codes.dtype, codes.tolist()) == (kind, torch.int32, [*range(14, -1, -1)])
    assert torch.equal(table[codes.long()], encoder.categories(every).to(kind))
    table.sum().backward()
    assert encoder.categories.table.grad.abs().sum() > 0
