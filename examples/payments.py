"""Payments by card, some of them fraud, as Parquet files: `python examples/payments.py data/payments`

Merchants have terminals; old ones are skimmed. A card that was used at an old terminal within the last 30 days is
abused more often, at any merchant, and then for higher amounts. So what tells lies three keys away from a payment: its
card, the card's earlier payments, their merchants' terminals.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

DAY = 86_400
START = 1_640_995_200
"""2022-01-01, in seconds since 1970."""
WITHIN_DAYS = 30
RISKS = (0.004, 0.06)
"""Of fraud: of cards without and with an old terminal in the days before."""


def make_payments(num_cards: int = 8000, num_payments: int = 160_000, seed: int = 0) -> dict[str, pa.Table]:
    """Return the tables, and with each payment how likely it was to be fraud (`risk`, which no file has)."""
    random = np.random.default_rng(seed)
    num_merchants = max(20, num_payments // 400)
    terminal = random.choice(["new", "middle", "old"], num_merchants, p=[0.5, 0.35, 0.15])
    merchant = random.integers(0, num_merchants, num_payments)
    card = random.integers(0, num_cards, num_payments)
    paid_at = np.sort(START + random.integers(0, 365 * DAY, num_payments))
    risk = np.where(_seen_recently(card, paid_at, terminal[merchant] == "old"), RISKS[1], RISKS[0])
    is_fraud = random.random(num_payments) < risk
    amount = np.exp(random.normal(3, 1, num_payments) + 0.7 * is_fraud).round(2)
    issued = START - random.integers(1, 1000, num_cards) * DAY
    return {
        "cards": pa.table({
            "card_id": np.arange(num_cards),
            "issued_at": pa.array(issued, pa.timestamp("s")),
            "country": random.choice(["de", "fr", "it", "pl"], num_cards),
        }),
        "merchants": pa.table({
            "merchant_id": np.arange(num_merchants),
            "terminal": terminal,
            "sector": random.choice(["food", "fuel", "shop", "travel"], num_merchants),
        }),
        "payments": pa.table({
            "payment_id": 1000 + np.arange(num_payments),
            "card_id": card,
            "merchant_id": merchant,
            "paid_at": pa.array(paid_at, pa.timestamp("s")),
            "amount": amount,
            "is_fraud": is_fraud.astype(np.int64),
            "risk": risk,
        }),
    }  # fmt: skip


def _seen_recently(card: np.ndarray, time: np.ndarray, old: np.ndarray) -> np.ndarray:
    """Return for payments (n,), in the order of their times, whether their card met an old terminal not long before."""
    last = np.full(card.max() + 1, -(1 << 40))
    found = np.zeros(len(card), np.bool_)
    for i in range(len(card)):
        found[i] = time[i] - last[card[i]] <= WITHIN_DAYS * DAY
        if old[i]:
            last[card[i]] = time[i]
    return found


def main(folder: Path) -> None:
    """Write cards, merchants and payments."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in make_payments().items():
        columns = [column for column in table.column_names if column != "risk"]
        pq.write_table(table.select(columns), folder / f"{name}.parquet")
        print(f"{folder / name}.parquet  {table.num_rows:,} rows")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/payments.py FOLDER")
    main(Path(sys.argv[1]))
