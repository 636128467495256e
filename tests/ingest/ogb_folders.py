"""Small folders in OGB's layout, as the real ones lie on disk."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import torch


def put(path: Path, rows: Any) -> None:
    """Write rows (an array, or text as it is) as csv.gz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not isinstance(rows, str):
        array = np.asarray(rows)
        array = array[:, None] if array.ndim == 1 else array
        rows = "".join(",".join("" if x != x else str(x) for x in row) + "\n" for row in array.tolist())
    path.write_bytes(gzip.compress(rows.encode()))


def put_raw(folder: Path, **files: Any) -> None:
    """Write files of raw/, by their names without an ending."""
    for name, rows in files.items():
        put(folder / "raw" / f"{name}.csv.gz", rows)


def node_folder(folder: Path, num_nodes: int = 12, num_classes: int = 3) -> dict[str, np.ndarray]:
    """Like ogbn-arxiv: features, labels, years, a split by time and a map of ids."""
    rng = np.random.default_rng(0)
    made = {
        "edge": rng.integers(0, num_nodes, (30, 2)),
        "feat": rng.standard_normal((num_nodes, 4)).round(4),
        "label": np.arange(num_nodes) % num_classes,
        "year": 2000 + np.arange(num_nodes),
    }
    names = zip(("edge", "node-feat", "node-label", "node_year"), made.values(), strict=True)
    put_raw(folder, **dict(names), **{"num-node-list": [num_nodes], "num-edge-list": [30]})
    ids = "".join(f"{i},n{i}\n" for i in range(num_nodes))
    put(folder / "mapping" / "nodeidx2name.csv.gz", f"node idx,name\n{ids}")
    write_split(folder / "split" / "time", num_nodes)
    return made


def write_split(folder: Path, num: int) -> None:
    """First half, next quarter, last quarter."""
    put(folder / "train.csv.gz", np.arange(num // 2))
    put(folder / "valid.csv.gz", np.arange(num // 2, 3 * num // 4))
    put(folder / "test.csv.gz", np.arange(3 * num // 4, num))


def mag_folder(folder: Path) -> dict[str, np.ndarray]:
    """Like ogbn-mag: three node types, three relations, features and labels on papers only."""
    rng = np.random.default_rng(1)
    counts = {"author": 5, "field": 3, "paper": 8}
    raw = folder / "raw"
    put(raw / "num-node-dict.csv.gz", ",".join(counts) + "\n" + ",".join(map(str, counts.values())) + "\n")
    put(raw / "triplet-type-list.csv.gz", "author,writes,paper\npaper,has,field\npaper,cites,paper\n")
    made = {}
    triplets = (("author", "writes", "paper", 9), ("paper", "has", "field", 10), ("paper", "cites", "paper", 11))
    for source, relation, target, m in triplets:
        edge = np.stack([rng.integers(0, counts[source], m), rng.integers(0, counts[target], m)], 1)
        place = raw / "relations" / f"{source}___{relation}___{target}"
        put(place / "edge.csv.gz", edge)
        put(place / "num-edge-list.csv.gz", [m])
        put(place / "edge_reltype.csv.gz", np.zeros(m, int))
        made[relation] = edge
    made["feat"] = rng.standard_normal((8, 2)).round(3)
    put(raw / "node-feat" / "paper" / "node-feat.csv.gz", made["feat"])
    put(raw / "node-feat" / "paper" / "node_year.csv.gz", np.arange(8) + 2010)
    put(raw / "nodetype-has-label.csv.gz", "author,field,paper\nFalse,False,True\n")
    put(raw / "node-label" / "paper" / "node-label.csv.gz", np.arange(8) % 4)
    split = folder / "split" / "time"
    put(split / "nodetype-has-split.csv.gz", "author,field,paper\nFalse,False,True\n")
    write_split(split / "paper", 8)
    ids = "".join(f"{i},{i * 11}\n" for i in range(8))
    put(folder / "mapping" / "paper_entidx2name.csv.gz", f"ent idx,ent name\n{ids}")
    return made


def papers_folder(folder: Path, compressed: bool = False) -> dict[str, np.ndarray]:
    """Like ogbn-papers100M: one npz, labels of some nodes only."""
    rng = np.random.default_rng(2)
    raw = folder / "raw"
    raw.mkdir(parents=True)
    label = np.full((10, 1), np.nan, np.float32)
    label[:8, 0] = np.arange(8) % 4
    edge, feat = rng.integers(0, 10, (2, 25)), rng.standard_normal((10, 6)).astype(np.float32)
    save = np.savez_compressed if compressed else np.savez
    counts = {"num_nodes_list": np.array([10]), "num_edges_list": np.array([25])}
    save(raw / "data.npz", edge_index=edge, node_feat=feat, node_year=np.arange(10)[:, None] + 1990, **counts)
    np.savez(raw / "node-label.npz", node_label=label)
    write_split(folder / "split" / "time", 8)
    return {"edge": edge, "feat": feat, "label": label}


def molecules_folder(folder: Path, tasks: int = 2) -> dict[str, Any]:
    """Like ogbg-mol*: three graphs with codes as features and some missing labels."""
    sizes, edges = [3, 1, 4], [2, 0, 3]
    made: dict[str, Any] = {
        "sizes": sizes,
        "edge": np.array([[0, 1], [1, 2], [0, 1], [1, 2], [2, 3]]),
        "feat": np.array([[5, 0, 4, 5, 3, 0, 2, 0, 0]] * 8) + np.arange(8)[:, None] * [1, 0, 0, 0, 0, 0, 0, 0, 0],
        "label": np.array([[1.0, np.nan], [0.0, 1.0], [np.nan, 0.0]])[:, :tasks],
    }
    codes = {"node-feat": made["feat"], "edge-feat": np.array([[0, 0, 1]] * 5)}
    counts = {"num-node-list": sizes, "num-edge-list": edges}
    put_raw(folder, edge=made["edge"], **codes, **counts, **{"graph-label": made["label"]})
    for i, split in enumerate(("train", "valid", "test")):
        put(folder / "split" / "scaffold" / f"{split}.csv.gz", [i])
    put(folder / "mapping" / "mol.csv.gz", 'y,smiles,mol_id\n1,CC,"a, b"\n0,C,c\n,CCC,d\n')
    return made


def link_folder(folder: Path, style: str = "pairs", tensors: bool = False) -> None:
    """Like ogbl-collab (`pairs`) or ogbl-citation2 (`candidates`)."""
    rng = np.random.default_rng(3)
    split = folder / "split" / "time"
    edge = np.stack([np.arange(9), np.arange(1, 10)], 1)
    put_raw(folder, edge=edge, edge_weight=np.arange(9) + 1, edge_year=np.arange(9) + 1990)
    put_raw(folder, **{"num-node-list": [10], "num-edge-list": [9]})
    split.mkdir(parents=True)
    wrap = torch.from_numpy if tensors else np.asarray
    for name, pairs in (
        ("train", edge),
        ("valid", edge[:2] + np.array([0, 1])),
        ("test", edge[3:6] + np.array([0, 2])),
    ):
        if style == "pairs":
            ones = np.ones(len(pairs), int)
            data = {"edge": wrap(pairs), "weight": wrap(ones), "year": wrap(2018 * ones)}
            if name != "train":
                data["edge_neg"] = wrap(rng.integers(0, 10, (5, 2)))
        else:
            data = {"source_node": wrap(pairs[:, 0].copy()), "target_node": wrap(pairs[:, 1].copy())}
            if name != "train":
                data["target_node_neg"] = wrap(rng.integers(0, 10, (len(pairs), 4)))
        torch.save(data, split / f"{name}.pt", pickle_protocol=4)


def wikikg_folder(folder: Path, candidates: int = 4) -> dict[str, dict[str, np.ndarray]]:
    """Like ogbl-wikikg2: one type, 6 entities, 3 relations; of each split what its file holds."""
    rng = np.random.default_rng(4)
    raw, split = folder / "raw", folder / "split" / "time"
    made = {}
    split.mkdir(parents=True)
    for name, count in (("train", 9), ("valid", 3), ("test", 2)):
        data = {
            "head": np.arange(count) % 6,
            "relation": np.arange(count) % 3,
            "tail": (np.arange(count) // 3 + {"train": 0, "valid": 3, "test": 4}[name]) % 6,
        }
        if name != "train":
            data |= {f"{end}_neg": rng.integers(0, 6, (count, candidates)) for end in ("head", "tail")}
        torch.save(data, split / f"{name}.pt", pickle_protocol=4)
        made[name] = data
    put(raw / "edge.csv.gz", np.stack([made["train"]["head"], made["train"]["tail"]], 1))
    put(raw / "edge_reltype.csv.gz", made["train"]["relation"])
    put(raw / "num-node-list.csv.gz", [6])
    put(raw / "num-edge-list.csv.gz", [9])
    put(folder / "mapping/nodeidx2entityid.csv.gz", "node idx,entity id\n" + "".join(f"{i},Q{i}\n" for i in range(6)))
    put(folder / "mapping/reltype2relid.csv.gz", "reltype,rel id\n1,P1\n0,P0\n2,P2\n")
    return made


BIOKG = {"disease": 3, "drug": 2, "protein": 4}


def biokg_folder(folder: Path, candidates: int = 3) -> dict[str, dict[str, Any]]:
    """Like ogbl-biokg: three types, ids within them, a folder of raw edges for each relation."""
    rng = np.random.default_rng(5)
    raw, split = folder / "raw", folder / "split" / "random"
    relations = [("disease", "disease-protein", "protein"), ("drug", "drug-drug_x", "drug"), ("drug", "p", "protein")]
    split.mkdir(parents=True)
    made = {}
    for name, relation in (("train", [0, 0, 1, 1, 2, 0]), ("valid", [2, 1]), ("test", [0, 2, 2])):
        kinds = [relations[r] for r in relation]
        data: dict[str, Any] = {
            "head_type": [kind[0] for kind in kinds],
            "head": np.array([rng.integers(BIOKG[kind[0]]) for kind in kinds]),
            "relation": np.array(relation),
            "tail_type": [kind[2] for kind in kinds],
            "tail": np.array([rng.integers(BIOKG[kind[2]]) for kind in kinds]),
        }
        for end, place in (("head", 0), ("tail", 2)) if name != "train" else ():
            data[f"{end}_neg"] = np.stack([rng.integers(0, BIOKG[kind[place]], candidates) for kind in kinds])
        torch.save(data, split / f"{name}.pt", pickle_protocol=4)
        made[name] = data
    put(raw / "num-node-dict.csv.gz", ",".join(BIOKG) + "\n" + ",".join(map(str, BIOKG.values())) + "\n")
    put(raw / "triplet-type-list.csv.gz", "".join(",".join(kind) + "\n" for kind in relations))
    for number, kind in enumerate(relations):
        rows = np.flatnonzero(made["train"]["relation"] == number)
        place = raw / "relations" / "___".join(kind)
        put(place / "edge.csv.gz", np.stack([made["train"]["head"][rows], made["train"]["tail"][rows]], 1))
        put(place / "edge_reltype.csv.gz", np.full(len(rows), number))
        put(place / "num-edge-list.csv.gz", [len(rows)])
    for kind, count in BIOKG.items():
        rows = "".join(f"{i},{kind[:2]}{i}\n" for i in range(count))
        put(folder / f"mapping/{kind}_entidx2name.csv.gz", "ent idx,ent name\n" + rows)
    names = "".join(f"{number},{kind[1]}\n" for number, kind in enumerate(relations))
    put(folder / "mapping/relidx2relname.csv.gz", "rel idx,rel name\n" + names)
    return made
