"""Proposals from folders as nobody would make them, run to the end as they are; and cells as companies export them."""

from __future__ import annotations

import datetime
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml

from configs.errors import RecipeError
from configs.load import build_recipe
from tasks.calls import load_stage
from tasks.ingest.database.proposal.names import foreign_score
from tasks.ingest.database.proposal.recipe import propose_recipe
from tasks.ingest.database.survey import DATE_FORMS, fitting_forms
from tasks.stage import Parent, run_stage
from tasks.storage.home import Home
from tests.ingest.conftest import Ingest
from tests.ingest.small_tables import save


def days(rng: Any, count: int, first: str = "2021-01-01", span: int = 1000) -> list[str]:
    start = datetime.date.fromisoformat(first)
    return [str(start + datetime.timedelta(days=int(day))) for day in np.sort(rng.integers(0, span, count))]


def write(file: str, /, **columns: Any) -> None:
    save(file, pa.table({column: pa.array(list(cells)) for column, cells in columns.items()}))


def dangling(rng: Any) -> None:
    """Two users have one id, so that it is no key, and a fifth of the orders' users are not there."""
    write("users.csv", id=[*range(100), 5, 6], created_at=days(rng, 102, span=50), plan=rng.choice(["p", "q"], 102))
    users = rng.integers(0, 125, 1500)
    write("orders.csv", id=range(1500), user_id=users, created_at=days(rng, 1500), total=rng.random(1500).round(2))
    why = [f"text {i} of many" for i in range(200)]
    write("refunds.csv", id=range(200), order_id=rng.integers(0, 1500, 200), created_at=days(rng, 200), why=why)


def clinic(rng: Any) -> None:
    """Visits without a day and without a patient, numbers among which words stand, and the weather."""
    day: list[str | None] = [*days(rng, 800)]
    day[3] = day[50] = None
    born = days(rng, 60, "1950-01-01", 20_000)
    write("Patienten.csv", pat=[f"P{i}" for i in range(60)], geb=born, stadt=rng.choice(["Ulm", "Bonn"], 60))
    patients = [f"P{i}" if i < 60 else None for i in rng.integers(0, 64, 800)]
    pulse = [str(x) if x % 17 else "n/a" for x in rng.integers(50, 120, 800)]
    write("Besuche.csv", nr=range(800), pat=patients, datum=day, puls=pulse)
    write("Wetter.csv", tag=days(rng, 30), grad=rng.normal(size=30).round(1))


def circles(rng: Any) -> None:
    """Employees have bosses, departments are led by employees, and one time counts seconds."""
    bosses = [None if i < 3 else int(rng.integers(0, i)) for i in range(200)]
    hired = 1_500_000_000 + np.sort(rng.integers(0, 9 * 10**7, 200))
    part = rng.integers(0, 10, 200)
    write("employees.csv", employee_id=range(200), boss_id=bosses, department_id=part, hired=hired)
    write("departments.csv", department_id=range(10), head_id=rng.integers(0, 200, 10), name=map(str, range(10)))
    scores = rng.integers(1, 6, 1500)
    write("reviews.csv", employee_id=rng.integers(0, 200, 1500), date=days(rng, 1500, "2018-01-01"), score=scores)


def broken(rng: Any) -> None:
    """Lists of two lengths, an infinite price, a column of one value, and purchases without a key."""
    vectors = [[1.0, 2.0] if i % 7 else [1.0] for i in range(50)]
    prices = [float("inf") if i == 3 else float(i) for i in range(50)]
    write("items.parquet", sku=[f"A-{i}" for i in range(50)], vec=vectors, price=prices, const=[1] * 50)
    start = datetime.datetime(2020, 1, 1)
    joined = [start + datetime.timedelta(days=i) for i in range(80)]
    write("customers.parquet", customer=[f"c{i}" for i in range(80)], joined=joined)
    who, what = ([f"{k}{i}" for i in rng.integers(0, n, 1500)] for k, n in (("c", 80), ("A-", 50)))
    bought = [start + datetime.timedelta(hours=int(h)) for h in rng.integers(9000, 29_000, 1500)]
    write("purchases.parquet", customer=who, sku=what, bought=bought, n=rng.integers(1, 4, 1500))


FOLDERS = (dangling, clinic, circles, broken)


@pytest.mark.parametrize(
    "make", [pytest.param(one, marks=() if one is broken else pytest.mark.slow) for one in FOLDERS]
)
def test_a_proposal_runs_to_the_end_as_it_is(
    make: Callable[[Any], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make(np.random.default_rng(5))
    text = propose_recipe(["."])
    plain = yaml.safe_load(text)
    plain["train"]["epochs"] = 1
    recipe, made, home = build_recipe(plain), dict[str, Parent](), Home.open(tmp_path / "home")
    stages = ("ingest", "preprocess", "components", "partition", "train", "evaluate")
    for name in stages[: 1 if make is broken else None]:
        made[name] = run_stage(load_stage(name), recipe, dict(made), home).parent
    assert min(made["ingest"].manifest.splits.values()) > 0
    if make is broken:
        assert "vec: ignore" in text
        assert "has lists of 1 to 2 numbers, which a column of numbers may not hold" in text
        assert "has infinite numbers, which" in text
    elif make is not circles:
        assert "# unsure: no key connects it to" in text


@pytest.mark.parametrize("kind", [int, str])
def test_an_id_that_repeats_is_no_key_and_no_feature(kind: type, folder: Path) -> None:
    rng = np.random.default_rng(0)
    users = [kind(1000 + (i if i not in (7, 90) else i - 1)) for i in range(200)]
    write("users.csv", user_id=users, age=rng.integers(18, 80, 200), plan_id=rng.integers(0, 9_000, 200))
    write("orders.csv", order_id=range(900), user_id=rng.choice(users, 900), day=days(rng, 900), paid=rng.random(900))
    proposed = propose_recipe(["."])
    why = "user_id is called like a key, and 2 of its values stand twice (1006, 1089): mend them, or key: user_id with"
    assert why in proposed
    tables = yaml.safe_load(proposed)["dataset"]["tables"]
    assert "key" not in tables["users"]
    assert tables["users"]["columns"] == {"age": "number", "user_id": "ignore", "plan_id": "ignore"}
    assert (tables["orders"]["key"], tables["orders"]["columns"]["user_id"]) == ("order_id", "ignore")
    assert "# an id of users, which has no key" in proposed


def test_names_that_yaml_would_read_as_something_else(folder: Path) -> None:
    place = folder / "2024"
    place.mkdir()
    odd = "a\nmodel: {name: x}\n\x7f"
    write("2024/null.csv", id=range(30), x=range(30))
    write("2024/no.parquet", id=range(60), when=[f"2020-01-{1 + i % 28:02}" for i in range(60)],
          **{"null\x7f": [i % 30 for i in range(60)], odd: range(60)})  # fmt: skip
    recipe = yaml.safe_load(propose_recipe([str(place)]))
    assert recipe["name"] == recipe["dataset"]["title"] == "2024"
    assert set(recipe["dataset"]["tables"]) == {"null", "no"}
    assert recipe["dataset"]["tables"]["no"]["foreign"] == {"null\x7f": "null"}
    assert odd in recipe["dataset"]["tables"]["no"]["columns"]
    assert recipe["dataset"]["predict"]["table"] == "null"


def test_comments_stand_apart_from_long_names(folder: Path) -> None:
    persons, person, note = ("a_name_of_forty_letters_that_some_" + end for end in ("persons", "person", "note"))
    write(f"{persons}.csv", **{person: range(40), note: [f"text {i} of its own" for i in range(40)]})
    write("deals.csv", when=["2020-01-01"] * 60, **{person: [i % 40 for i in range(60)], note: ["x"] * 60})
    text = propose_recipe([str(folder)])
    assert yaml.safe_load(text)["dataset"]["tables"][persons]["columns"][note] == "ignore"
    assert all("#" not in line or " #" in line or line.startswith("#") for line in text.splitlines())


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
