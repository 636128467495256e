"""Accounts and transfers between them, some of which were disputed: `python examples/transfers.py data`

A dispute is likely where a careless account pays one that others complain about; neither is a column. Whom an account
deals with tells it, a little each, and large amounts are disputed more often. One transfer in five is not settled yet.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np


def make_transfers(accounts: int = 1500, transfers: int = 12_000, seed: int = 0) -> tuple[list[list], list[list]]:
    """Return the rows of both tables, with their columns' names first."""
    random = np.random.default_rng(seed)
    careless = random.random(accounts) < 0.4
    age = random.normal(40 - 4 * careless, 12).clip(18, 90).round()
    limit = np.exp(random.normal(7 + 0.3 * careless, 0.8)).round()
    source, target = random.integers(0, accounts, (2, 5 * transfers))
    kept = (careless[source] == careless[target]) | (random.random(5 * transfers) < 0.25)
    source, target = source[kept][:transfers], target[kept][:transfers]
    amount = np.exp(random.normal(4, 1.2, transfers)).round(2)
    channel = random.choice(["app", "branch", "web"], transfers)
    score = -3.2 + 2 * careless[source] + 1.8 * careless[target] + 0.8 * (np.log(amount) - 4) + 0.4 * (channel == "web")
    disputed = np.where(random.random(transfers) < 1 / (1 + np.exp(-score)), "yes", "no").astype(object)
    disputed[random.random(transfers) < 0.2] = ""
    names = [f"acc-{number:04d}" for number in range(accounts)]
    nodes = [["account", "age", "limit"], *zip(names, age.astype(int), limit.astype(int), strict=True)]
    ids = (f"tr-{number:05d}" for number in range(transfers))
    ends = ([names[number] for number in column] for column in (source, target))
    edges = zip(ids, *ends, np.arange(transfers) * 600, amount, channel, disputed, strict=True)
    return nodes, [["transfer", "from", "to", "second", "amount", "channel", "disputed"], *edges]


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "data")
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in zip(("accounts", "transfers"), make_transfers(), strict=True):
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)
