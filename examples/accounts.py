"""Two small tables for the tutorial: accounts, and payments between them. `python examples/accounts.py data`

Who pays whom tells what an account is: private people pay shops, shops pay companies, companies pay salaries. Balance
and logins tell a little; one label in ten is missing.
"""

from __future__ import annotations

import csv
import datetime
import random
import sys
from pathlib import Path

KINDS = ("private", "shop", "company")
PAYS = {"private": "shop", "shop": "company", "company": "private"}
COUNTRIES = ("DE", "FR", "PL", "SE")
FIRST_DAY, DAYS = datetime.date(2021, 1, 1), 5 * 365
NUM_ACCOUNTS, NUM_PAYMENTS, SEED = 3000, 18000, 7


def main(folder: Path) -> None:
    """Write `accounts.csv` and `payments.csv`."""
    draw = random.Random(SEED)
    kinds = [draw.choices(KINDS, (6, 3, 1))[0] for _ in range(NUM_ACCOUNTS)]
    # The first hundred are there on the first day, so that everybody has somebody to pay.
    opened = [0 if number < 100 else draw.randrange(DAYS) for number in range(NUM_ACCOUNTS)]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "accounts.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "kind", "country", "balance", "logins", "opened"])
        for number, kind in enumerate(kinds):
            level = KINDS.index(kind)
            balance, logins = draw.gauss(1000 + 300 * level, 500), draw.gauss(20 - 2 * level, 6)
            label = kind if draw.random() < 0.9 else ""
            country = draw.choice(COUNTRIES)
            rows.writerow([name(number), label, country, f"{balance:.2f}", f"{logins:.0f}", day(opened[number])])
    with (folder / "payments.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["payer", "payee", "amount", "paid_on"])
        members = {kind: [number for number in range(NUM_ACCOUNTS) if kinds[number] == kind] for kind in KINDS}
        for _ in range(NUM_PAYMENTS):
            payer = draw.randrange(NUM_ACCOUNTS)
            kind = PAYS[kinds[payer]] if draw.random() < 0.6 else draw.choice(KINDS)
            payee = draw.choice(members[kind])
            paid = draw.randrange(max(opened[payer], opened[payee]), DAYS)
            rows.writerow([name(payer), name(payee), f"{draw.lognormvariate(3, 1):.2f}", day(paid)])


def name(number: int) -> str:
    """Return an account's id."""
    return f"acc-{number:05d}"


def day(number: int) -> str:
    """Return a day as text, counted from the first."""
    return (FIRST_DAY + datetime.timedelta(days=number)).isoformat()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "data"))
