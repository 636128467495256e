"""Made accounts and transfers with a few rings of fraud: what losses, metrics, texts and edges' columns are worth.

    python -m benchmarks.fraud FOLDER [--seed 0]
    cd FOLDER && graphmill run plain.yaml && graphmill run fraud.yaml

Writes `accounts.parquet` (12,000 of which 2 % are fraud, named in `label`), `transfers.parquet` (60,000), and recipes:
`plain` says what a first recipe says, `fraud` what this package has for rare classes. Rings of five accounts pass money
on: several others pay into a ring, within days, with words that others use too, and the ring's members pay each other.
Neither an account's own columns nor a single transfer tell much. There is dirt, as real tables have: accounts without
a label, empty cells, a few transfers that stand there twice, countries that are question marks.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ACCOUNTS, TRANSFERS, RINGS, IN_RING = 12_000, 60_000, 48, 5
_DAYS = 365
_USUAL = (
    "rent",
    "salary",
    "groceries",
    "invoice",
    "thanks",
    "birthday",
    "electricity",
    "insurance",
    "holiday",
    "books",
)
_URGENT = ("urgent", "invoice", "release fee", "customs", "refund", "thanks")
_COUNTRIES = ("DE", "FR", "IT", "NL", "PL", "??")

_DATASET = """\
dataset:
  name: tables
  directed: true
  task: node
  metric: {metric}
  nodes:
    files: accounts.parquet
    id: account
    label: [label]
    features: [age, balance]
    categorical: [country, kind]
    missing: {{age: mean}}
  edges:
    files: transfers.parquet
    source: payer
    target: payee
    features: [amount]
    categorical: [channel]
    texts: {texts}
    missing: {{amount: zero}}
"""
RECIPES = {
    "plain": f"""\
name: plain
{_DATASET.format(metric="accuracy", texts="[]")}\
preprocess: {{transforms: [standardize]}}
model: {{name: graphsage, num_layers: 2}}
""",
    "fraud": f"""\
name: fraud
{_DATASET.format(metric="average_precision", texts="[memo]")}\
preprocess: {{deduplicate: false, transforms: [degree, standardize], texts: {{name: tfidf, dim: 32}}}}
model: {{name: graphsage, num_layers: 2, dropout: 0.3}}
train: {{loader: {{name: neighbor, balance: classes}}, epochs: 30, patience: 8}}
evaluate:
  threshold: cost
  costs: {{false_positive: 1, false_negative: 40}}
  groups: [degree, country]
""",
}


def accounts(rng: np.random.Generator) -> tuple[pa.Table, np.ndarray]:
    """Return the accounts, and the rings' members (RINGS, IN_RING)."""
    rings = rng.choice(ACCOUNTS, (RINGS, IN_RING), replace=False)
    fraud = np.zeros(ACCOUNTS, bool)
    fraud[rings] = True
    age = rng.gamma(4, 600, ACCOUNTS) * np.where(fraud, 0.8, 1)
    label = np.where(fraud, "fraud", "ok").astype(object)
    columns = {
        "account": [f"acc-{number:05d}" for number in range(ACCOUNTS)],
        "age": pa.array(age, mask=rng.random(ACCOUNTS) < 0.03),
        "balance": rng.lognormal(7, 1.5, ACCOUNTS) * np.where(fraud, 0.7, 1),
        "country": pa.array(rng.choice(_COUNTRIES, ACCOUNTS).astype(object), mask=rng.random(ACCOUNTS) < 0.02),
        "kind": rng.choice(["private", "business"], ACCOUNTS, p=[0.8, 0.2]),
        "label": pa.array(label, pa.string(), mask=rng.random(ACCOUNTS) < 0.05),
    }
    return pa.table(columns), rings


def transfers(rng: np.random.Generator, rings: np.ndarray) -> pa.Table:
    """Return the transfers: most between accounts that are near each other, some into rings and within them."""
    into, within = RINGS * 30, RINGS * 8
    usual = TRANSFERS - into - within
    payer = rng.integers(0, ACCOUNTS, usual)
    payee = (payer + rng.geometric(0.01, usual) * rng.choice([-1, 1], usual)) % ACCOUNTS
    ring = np.repeat(np.arange(RINGS), 30)
    inner = np.repeat(np.arange(RINGS), 8)
    first = rng.integers(0, IN_RING, within)
    payer = np.concatenate([payer, rng.integers(0, ACCOUNTS, into), rings[inner, first]])
    second = (first + rng.integers(1, IN_RING, within)) % IN_RING
    payee = np.concatenate([payee, rings[ring, rng.integers(0, IN_RING, into)], rings[inner, second]])
    start = rng.integers(0, _DAYS - 10, RINGS)
    day = np.concatenate([rng.integers(0, _DAYS, usual), start[ring] + rng.integers(0, 5, into), start[inner] + 6])
    urgent = rng.random(TRANSFERS) < np.concatenate([np.full(usual, 0.05), np.full(into, 0.7), np.full(within, 0.2)])
    number = rng.integers(100, 999, TRANSFERS)
    words = [f"{rng.choice(_URGENT if hurry else _USUAL)} {n}" for hurry, n in zip(urgent, number, strict=True)]
    table = pa.table(
        {
            "payer": [f"acc-{node:05d}" for node in payer],
            "payee": [f"acc-{node:05d}" for node in payee],
            "amount": pa.array(rng.lognormal(5, 1, TRANSFERS), mask=rng.random(TRANSFERS) < 0.01),
            "when": pa.array(np.datetime64("2026-01-01") + day.astype("timedelta64[D]")),
            "channel": rng.choice(["card", "wire", "app"], TRANSFERS),
            "memo": pa.array(words, mask=rng.random(TRANSFERS) < 0.1),
        }
    )
    order = rng.permutation(TRANSFERS)
    return table.take(np.concatenate([order, order[:20]]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(args.seed)
    table, rings = accounts(rng)
    pq.write_table(table, args.folder / "accounts.parquet")
    pq.write_table(transfers(rng, rings), args.folder / "transfers.parquet")
    for name, text in RECIPES.items():
        (args.folder / f"{name}.yaml").write_text(text)


if __name__ == "__main__":
    main()
