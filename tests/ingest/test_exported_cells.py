"""Cells as companies export them: dates of many forms, keys with zeros in front, words among numbers."""

from __future__ import annotations

import datetime
import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml

from configs.errors import RecipeError
from configs.load import build_recipe
from tasks.ingest.database.proposal.names import foreign_score
from tasks.ingest.database.proposal.recipe import propose_recipe
from tasks.ingest.database.survey import DATE_FORMS, fitting_forms
from tests.ingest.conftest import Ingest
from tests.ingest.small_tables import save

START = datetime.datetime(2021, 1, 3, 13, 5, 9)


def dates(form: str, count: int, every: float = 1.7) -> list[str]:
    return [(START + datetime.timedelta(days=i * every)).strftime(form) for i in range(count)]


@pytest.mark.parametrize("form", DATE_FORMS)
def test_each_form_is_known_and_reads_what_was_written(form: str) -> None:
    cells = dates(form, 60)
    found = fitting_forms(pa.array(cells), DATE_FORMS)
    assert form in found
    wanted = [datetime.datetime.strptime(cell, form) for cell in cells]
    for other in found:  # the same day, but for May, whose name is its abbreviation
        assert [datetime.datetime.strptime(cell, other) for cell in cells] == wanted


@pytest.mark.parametrize("cells", [["1/2", "3/4"], ["31/31/2021"], ["2021-02-03"], ["10.0.12.1"], ["01/02/2021", "x"]])
def test_what_is_no_date_fits_no_form(cells: list[str]) -> None:
    assert fitting_forms(pa.array(cells), DATE_FORMS) == ()


def test_days_that_may_be_months_fit_both() -> None:
    assert fitting_forms(pa.array(["01/02/2021", "3/4/2021"]), DATE_FORMS) == ("%d/%m/%Y", "%m/%d/%Y")


def bank(folder: Path) -> None:
    """Three forms of dates, a key called IBAN that payments name by account_iban, and dates that may be two things."""
    rng = np.random.default_rng(5)
    count, ibans = 900, [f"AT{i:04d}" for i in range(40)]
    born = [f"{i % 28 + 1:02d}/{i % 12 + 1:02d}/{1950 + i}" for i in range(40)]
    opened = [f"{i % 12 + 1}.{i % 11 + 1}.2020" for i in range(40)]
    save("accounts.csv", pa.table({"iban": ibans, "opened": opened, "born": born}))
    payments = {
        "account_iban": [ibans[i] for i in rng.integers(0, 40, count)],
        "booked": dates("%d/%m/%Y %H:%M", count),
        "valued_on": dates("%b %d, %Y", count),
        "amount": rng.integers(1, 900, count),
    }
    save("payments.csv", pa.table(payments))


def test_a_proposal_reads_dates_of_other_forms(ingest: Ingest, folder: Path) -> None:
    bank(folder)
    text = propose_recipe(["."])
    recipe = yaml.safe_load(text)
    tables = recipe["dataset"]["tables"]
    assert tables["accounts"]["time_format"] == {"opened": "%d.%m.%Y", "born": "%d/%m/%Y"}
    assert "opened may be %m.%d.%Y as well" in text
    assert tables["accounts"]["columns"]["born"] == "time"
    forms = {"booked": "%d/%m/%Y %H:%M", "valued_on": "%b %d, %Y"}
    assert tables["payments"]["time_format"] in (forms, forms["booked"])
    assert tables["payments"]["foreign"] == {"account_iban": "accounts"}
    build_recipe(recipe)
    assert ingest(**recipe["dataset"]).manifest.splits["test"] > 0


def test_a_run_says_how_dates_that_it_does_not_read_are_written(
    ingest: Ingest, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bank(folder)
    section = yaml.safe_load(propose_recipe(["."]))["dataset"]
    accounts = section["tables"]["accounts"]
    del accounts["columns"]
    accounts["time_format"] = "%d.%m.%Y"
    with caplog.at_level(logging.INFO):
        read = columns(ingest, section)
    said = caplog.text
    assert "accounts.born" not in read
    assert 'born holds dates written as %d/%m/%Y; time_format: {born: "%d/%m/%Y"} reads them' in said
    accounts["time_format"] = {"opened": "%d.%m.%Y", "born": "%d/%m/%Y"}
    assert "accounts.born" in columns(ingest, section)


def columns(ingest: Ingest, section: dict[str, Any]) -> set[str]:
    return set(ingest(**section).manifest.tables["nodes/accounts"].columns)


def test_what_time_format_may_not_name(folder: Path) -> None:
    bank(folder)
    good = yaml.safe_load(propose_recipe(["."]))
    for table, form, words in (
        ("accounts", {"iban": "%d.%m.%Y"}, "'iban', which is key and no time"),
        ("payments", {"account_iban": "%d.%m.%Y"}, "which is foreign key and no time"),
        ("payments", {"amount": "%d.%m.%Y"}, "'amount', which is number and no time"),
        ("payments", {"booked": "%d.%m"}, "does not say which year"),
        ("payments", {"booked": 3}, "3 is not how times are written"),
        ("payments", [1], "is not how times are written"),
    ):
        recipe = yaml.safe_load(yaml.safe_dump(good))
        recipe["dataset"]["tables"][table]["time_format"] = form
        with pytest.raises(RecipeError, match=re.escape(words)):
            build_recipe(recipe)


def test_a_key_may_be_called_by_its_table_and_its_own_name() -> None:
    assert foreign_score("account_iban", "payments", "accounts", "iban") == 4
    assert foreign_score("receiver_iban", "payments", "accounts", "iban") == 2
    assert foreign_score("file_name", "payments", "accounts", "name") == 0


def test_keys_with_zeros_in_front_stay_as_they_are(ingest: Ingest, folder: Path) -> None:
    """A run says that they are numbers otherwise, and that ids come back so."""
    count = 600
    save("customers.csv", pa.table({"customer_id": [f"{i:05d}" for i in range(50)], "city": ["x", "y"] * 25}))
    who = [f"{i * 7 % 50:05d}" for i in range(count)]
    save("visits.csv", pa.table({"visit_id": range(count), "customer_id": who, "day": dates("%Y-%m-%d", count)}))
    section = yaml.safe_load(propose_recipe(["."]))["dataset"]
    assert section["text_ids"] is True
    store = ingest(**section)
    assert store.read("ids/customers")["original_id"].to_pylist()[:2] == ["00000", "00001"]
    assert not any("is read as the number" in text for text in store.manifest.warnings)
    (said,) = (text for text in ingest(**section | {"text_ids": False}).manifest.warnings if "as the number" in text)
    assert said.startswith(
        "customers.csv: the id 00000 is read as the number 0, and 0 is the same id; dataset.text_ids"
    )


def test_numbers_beside_words_for_empty_cells(ingest: Ingest, folder: Path) -> None:
    count = 300
    limits = ["N/A" if i % 9 == 0 else str(100 * (i % 40)) for i in range(count)]
    fees = [f"1,{i % 900 + 100}.50" if i % 5 == 0 else f"{i}.25" for i in range(count)]
    sizes = ["n/a" if i % 9 == 0 else ["large", "small"][i % 2] for i in range(count)]
    save("users.csv", pa.table({"user_id": range(count), "limit": limits, "fee": fees, "size": sizes}))
    visits = {"visit_id": range(900), "user_id": [i % count for i in range(900)], "day": dates("%Y-%m-%d", 900)}
    save("visits.csv", pa.table(visits))
    text = propose_recipe(["."])
    section = yaml.safe_load(text)["dataset"]
    users = section["tables"]["users"]
    assert users["missing_values"] == ["", "N/A"]
    assert users["columns"] == {"limit": "number", "size": "category", "fee": "ignore"}
    assert "fee: ignore                       # holds numbers with signs for thousands" in text
    (kind,) = (one for one in ingest(**section).manifest.node_types if one.name == "users")
    assert [one.kind for one in kind.features if one.column == "users.limit"] == ["numeric"]
