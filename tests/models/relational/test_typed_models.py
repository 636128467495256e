"""Models of typed graphs against plain torch: edge by edge, forward and gradient."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from configs.errors import RecipeError
from configs.registry import MODELS
from models.relational.base import RelationalModel, plan_hops
from models.relational.batch import TypedBlock
from models.relational.encoders import AgeEncoding
from tests.models.relational.typed_batches import FACTS, make, random_batch
from tests.models.test_contract import assert_all_have_gradients
from tests.registered import models_of
from tests.support import WITHOUT_DGL

NAMES = [name for name in models_of("relational") if not (WITHOUT_DGL and name == "dgl_hetero")]


# ---- plain references: a loop over destinations, and over their edges


def edge_mean(term: Any, relation: Any, v: int) -> Tensor:
    """U_r of the mean of what v's edges carry."""
    edges = range(int(relation.indptr[v]), int(relation.indptr[v + 1]))
    total = torch.zeros(term.numbers.weight.shape[0])
    for e in edges:
        carried = torch.cat([relation.edge_feat[e], term.ages(relation.edge_age[e : e + 1])[0]])
        total = total + term.numbers.weight @ carried + term.categories.table[int(relation.edge_feat_cat[e, 0])]
    return total / max(1, len(edges))


def sources_of(relation: Any, v: int) -> list[int]:
    return relation.indices[int(relation.indptr[v]) : int(relation.indptr[v + 1])].tolist()


def relations_into(conv: Any, block: TypedBlock, t: int) -> list[Any]:
    return [block.by_number[n] for n in conv.hop.relations if block.by_number[n].target_type == t]


def plain_heterosage(conv: Any, block: TypedBlock, x: dict[int, Tensor], t: int, v: int) -> Tensor:
    y = conv.own[str(t)](x[t][v])
    for relation in relations_into(conv, block, t):
        number, sources = str(relation.number), sources_of(relation, v)
        if sources:
            y = y + conv.maps[number].weight @ x[relation.source_type][sources].mean(0)
        if conv.edges[number].has_features:
            y = y + edge_mean(conv.edges[number], relation, v)
    return y


def plain_rgat(conv: Any, block: TypedBlock, x: dict[int, Tensor], t: int, v: int) -> Tensor:
    y = conv.own[str(t)](x[t][v])
    for relation in relations_into(conv, block, t):
        part, sources = conv.attention[str(relation.number)], sources_of(relation, v)
        if sources:
            z = torch.stack([(part.map.weight @ x[relation.source_type][u]).view(part.heads, -1) for u in sources])
            logits = (z * part.source).sum(2) + part.target @ x[t][v]
            a = torch.softmax(torch.where(logits > 0, logits, part.slope * logits), 0)
            y = y + (a.unsqueeze(2) * z).sum(0).flatten()
        if conv.edges[str(relation.number)].has_features:
            y = y + edge_mean(conv.edges[str(relation.number)], relation, v)
    return y


def plain_hgt(conv: Any, block: TypedBlock, x: dict[int, Tensor], t: int, v: int) -> Tensor:
    heads, dim = conv.heads, x[t].shape[1]
    size = dim // heads
    logits, messages = [], []
    gathered = torch.zeros(dim)
    for relation in relations_into(conv, block, t):
        maps, s = conv.maps[str(relation.number)], str(relation.source_type)
        query = conv.queries[str(t)](x[t][v]).view(heads, size)
        for u in sources_of(relation, v):
            key = conv.keys[s](x[relation.source_type][u]).view(heads, size)
            value = conv.values[s](x[relation.source_type][u]).view(heads, size)
            logits.append(torch.stack([key[h] @ maps.attention[h] @ query[h] for h in range(heads)]) * maps.prior)
            messages.append(torch.stack([value[h] @ maps.message[h] for h in range(heads)]))
        if conv.edges[str(relation.number)].has_features:
            gathered = gathered + edge_mean(conv.edges[str(relation.number)], relation, v)
    if logits:
        a = torch.softmax(torch.stack(logits) / size**0.5, 0)
        gathered = gathered + (a.unsqueeze(2) * torch.stack(messages)).sum(0).flatten()
    gate = torch.sigmoid(conv.skips[str(t)])
    return gate * conv.outputs[str(t)](torch.nn.functional.gelu(gathered)) + (1 - gate) * x[t][v]


def plain_dgl_hetero(conv: Any, block: TypedBlock, x: dict[int, Tensor], t: int, v: int) -> Tensor:
    """SAGEConv of each relation, added up; `test_dgl_hetero.py` compares all others with DGL's own."""
    parts = []
    for relation in relations_into(conv, block, t):
        sage, sources = conv.mods[str(relation.number)].conv, sources_of(relation, v)
        mean = x[relation.source_type][sources].mean(0) if sources else torch.zeros(12)
        parts.append(sage.fc_self(x[t][v]) + sage.fc_neigh(mean))
    return torch.stack(parts).sum(0) if parts else x[t][v]


def plain_pinsage(conv: Any, block: TypedBlock, x: dict[int, Tensor], t: int, v: int) -> Tensor:
    relation, n = block.by_number[-1 - t], torch.zeros(x[t].shape[1])
    message = conv.messages[str(t)]
    for e in range(int(relation.indptr[v]), int(relation.indptr[v + 1])):
        h = x[conv.kind][int(relation.indices[e])]
        n = n + relation.weight[e] * (message.weight @ h + message.bias).clamp(min=0)
    z = (torch.cat([conv.own[str(t)].weight, conv.pooled[str(t)].weight], 1) @ torch.cat([x[t][v], n])).add(
        conv.own[str(t)].bias
    )
    z = z.clamp(min=0)
    return 12**0.5 * z / z.norm().clamp(min=1e-12)


PLAIN: dict[str, Callable[..., Tensor]] = {
    name: globals()[f"plain_{name}"] for name in ("heterosage", "rgat", "hgt", "dgl_hetero", "pinsage")
}


def test_every_model_has_a_reference() -> None:
    assert sorted(PLAIN) == sorted(models_of("relational"))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_convolutions_are_their_formulas(name: str, seed: int) -> None:
    """Forward, and gradients of all weights and inputs, of both layers' convolutions."""
    model, batch = make(name, seed), random_batch(seed=seed)
    x: dict[int, Tensor] = {t: torch.randn(n, 12, requires_grad=True) for t, n in enumerate(batch.blocks[0].num_src)}
    for block, layer in zip(batch.blocks, model.layers, strict=True):
        conv: Any = layer.conv
        x = {t: x[t].detach()[: block.num_src[t]].requires_grad_() for t in layer.hop.sources}
        rows, expected = conv(block, x), {}
        assert sorted(rows) == list(layer.hop.targets)
        for t in layer.hop.targets:
            of_nodes = [PLAIN[name](conv, block, x, t, v) for v in range(block.num_dst[t])]
            expected[t] = torch.stack(of_nodes) if of_nodes else torch.zeros(0, 12)
        torch.testing.assert_close(rows, expected, rtol=1e-4, atol=1e-5)
        weights = {t: torch.randn_like(y) for t, y in expected.items()}
        gradients = []
        for made in (rows, expected):
            total = sum((made[t] * weights[t]).sum() for t in layer.hop.targets)
            leaves = [*conv.parameters(), *x.values()]
            gradients.append(torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True))
        torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_every_weight_takes_part_in_every_step(name: str) -> None:
    """Also where a relation has no edges and a type no rows: ranks wait for each other's gradients."""
    model, batch = make(name, num_layers=3), random_batch(num_layers=3)
    scores = model(batch)
    assert scores.shape == (4, 1)
    torch.testing.assert_close(scores[2], scores[3])  # both ask about row 2
    scores.square().sum().backward()
    assert_all_have_gradients(dict(model.named_parameters()))


def test_layers_have_weights_for_what_leads_to_the_seeds_only() -> None:
    """Seeds are customers (0): tasks (4) carry no messages, and reviews (3) have no in-edges."""
    hops = plan_hops(FACTS, 3)
    assert [hop.targets for hop in hops] == [(0, 1, 2, 3), (0, 1, 3), (0,)]
    assert [hop.relations for hop in hops] == [(0, 1, 2, 3, 4, 5, 6), (0, 1, 3, 4), (0, 4)]
    assert hops[0].sources == {0, 1, 2, 3}
    model = make("heterosage", num_layers=1)
    assert sorted(model.encoder.types) == ["0", "1", "3"]


@pytest.mark.parametrize("name", NAMES)
def test_types_read_their_own_columns_and_ages(name: str) -> None:
    """A change of any input changes a score, for each kind of input there is."""
    model, batch = make(name, num_layers=3).eval(), random_batch(num_layers=3, seed=1)
    before = model(batch)
    for t, field in [(0, "feat"), (0, "feat_cat"), (0, "age"), (1, "feat"), (2, "feat_cat"), (3, "feat")]:
        if name == "pinsage" and t != 0:
            continue  # it reads rows of the seeds' type alone
        types = list(batch.inputs.types)
        value = getattr(types[t], field)
        other = (value + 1) % 3 if field == "feat_cat" else value + 3
        types[t] = dataclasses.replace(types[t], **{field: other})
        assert len(value), "a type without rows says nothing"
        inputs = dataclasses.replace(batch.inputs, types=types)
        assert not torch.equal(model(dataclasses.replace(batch, inputs=inputs)), before), (t, field)


@pytest.mark.parametrize("name", NAMES)
def test_models_compute_in_bfloat16_and_state_makes_them_again(name: str) -> None:
    model, batch = make(name), random_batch()
    scores = model(batch)
    with torch.autocast("cpu", torch.bfloat16):
        rough = model(batch)
    assert (rough.float() - scores).norm() < 0.1 * scores.norm()
    rough.float().square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    torch.manual_seed(9)
    again: RelationalModel = MODELS.create(model.config, model.facts)
    again.load_state_dict(model.state_dict())
    assert torch.equal(model.eval()(batch), again.eval()(batch))


def test_ages_are_relative_and_missing_ones_are_zeros() -> None:
    encode = AgeEncoding(sines=True)
    now, week, missing, later = encode(torch.tensor([0.0, 7.0, float("nan"), -1.0]))
    torch.testing.assert_close(missing, torch.zeros(encode.width))
    torch.testing.assert_close(later, now)  # before its own moment nothing is younger than 0
    torch.testing.assert_close(week[3], torch.tensor(0.0), atol=1e-5, rtol=0)
    assert week[1] > now[1]


def test_graphs_that_do_not_say_what_relations_join_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"self_loops=remove"):
        make("heterosage", facts=dataclasses.replace(FACTS, relation_ends=()))
    with pytest.raises(RecipeError, match="link task"):
        make("heterosage", facts=dataclasses.replace(FACTS, task="link"))
    with pytest.raises(ValueError, match="does not divide"):
        make("hgt", heads=5)
