"""Recipes proposed from files alone: the generated shop, and folders as companies have them."""

# ruff: noqa: E501 -- a table of a line reads as one

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from configs.errors import DataError, RecipeError
from configs.load import build_recipe
from configs.registry import DATASETS
from tasks.ingest.database.proposal.names import foreign_score, key_score, singular
from tasks.ingest.database.proposal.recipe import propose_recipe
from tasks.ingest.synthetic.shop import shop_section, write_shop
from tests.ingest.conftest import Ingest
from tests.ingest.small_tables import save

rng = np.random.default_rng(3)


def proposed(*places: str) -> tuple[dict[str, Any], str]:
    text = propose_recipe(places or (".",))
    return yaml.safe_load(text), text


def days(count: int, first: str = "2021-01-01", span: int = 1000) -> list[str]:
    start = datetime.date.fromisoformat(first)
    return [str(start + datetime.timedelta(days=int(day))) for day in np.sort(rng.integers(0, span, count))]


def links(section: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {name: table.get("foreign", {}) for name, table in section["tables"].items() if table.get("foreign")}


def keys(section: dict[str, Any]) -> dict[str, str]:
    return {name: table["key"] for name, table in section["tables"].items() if "key" in table}


def note(text: str, start: str) -> str:
    """Return the comment of the only line that begins so."""
    (line,) = [line for line in text.splitlines() if line.strip().startswith(start)]
    return line.partition("#")[2]


def test_the_shop_is_read_as_it_was_made(ingest: Ingest, folder: Path) -> None:
    sizes = {"num_customers": 3000, "num_products": 200, "reviews_a_quarter": 1500}
    config: Any = DATASETS.config({"name": "synthetic_shop", **sizes})
    write_shop(config, folder)
    recipe, text = proposed()
    meant = shop_section(config, folder)
    section = recipe["dataset"]
    assert set(section["tables"]) == set(meant["tables"])
    for name, table in meant["tables"].items():
        for option in ("key", "time", "foreign"):
            assert section["tables"][name].get(option) == table.get(option), (name, option)
    assert section["predict"]["table"] == "customers"
    assert section["predict"]["target"] == {"none": "orders"}
    assert text.count("unsure: ") == 1  # what is predicted
    assert section["tables"]["reviews"]["columns"] == {"rating": "category", "helpful": "category"}
    assert section["tables"]["products"]["columns"]["price"] == "number"
    build_recipe(recipe)
    store = ingest(**section)
    assert store.manifest.num_edges > 20_000


def test_exports_of_a_web_shop(ingest: Ingest, folder: Path) -> None:
    """Files by month in a folder, keys as texts with zeros, a table of labels nobody asked for, names with blanks."""
    (folder / "bestellungen").mkdir()
    kunden = [f"K{i:04d}" for i in range(40)]
    save("kunden.csv", pa.table({"kunde": kunden, "angemeldet am": days(40, span=100), "ort": ["B", "M"] * 20}))
    number = 0
    for month in range(3):
        rows = {
            "bestellung_id": np.arange(number, number + 60),
            "kunde": [kunden[i] for i in rng.integers(0, 40, 60)],
            "created_at": days(60, f"2021-{5 + month:02d}-01", 28),
            "summe": rng.random(60).round(2),
        }
        number += 60
        save(f"bestellungen/teil-{month}.csv", pa.table(rows))
    save("log-2021.csv", pa.table({"stunde": [1, 1], "last": [0.5, 0.25]}))
    recipe, text = proposed()
    section = recipe["dataset"]
    assert keys(section) == {"bestellungen": "bestellung_id", "kunden": "kunde"}
    assert links(section) == {"bestellungen": {"kunde": "kunden"}}
    assert section["tables"]["kunden"]["time"] == "angemeldet am"
    assert section["tables"]["bestellungen"]["files"] == "bestellungen"
    assert "log-2021" not in section["tables"]  # nothing connects it: it is there as a comment
    assert "# unsure: no key connects it to kunden; name a foreign key, or leave it out" in text
    assert section["predict"]["horizon"] == "7d"
    build_recipe(recipe)
    assert ingest(**section).manifest.splits["test"] > 0


def test_a_clinic(ingest: Ingest, folder: Path) -> None:
    """Milliseconds since 1970, admissions of patients who are not there, decimals as keys, discharge after admission."""
    start, day = 1_600_000_000_000, 86_400_000
    patients, doctors, count = np.arange(500, 560), ["Dr-A", "Dr-B", "Dr-C"], 300
    born = {"id": patients, "sex": ["f", "m"] * 30, "birth_date": days(60, "1950-01-01", 9000)}
    save("patient.parquet", pa.table(born))
    save("doctor.parquet", pa.table({"code": doctors, "department": ["x", "x", "y"]}))
    admitted = start + np.sort(rng.integers(0, 500, count)) * day
    patient = rng.integers(500, 560, count).astype(float)
    patient[:5] = [900, 901, 902, 903, np.nan]
    admissions = {
        "AdmissionID": np.arange(count),
        "PatientID": pa.array(patient),
        "DoctorCode": [doctors[i] for i in rng.integers(0, 3, count)],
        "AdmissionTime": admitted,
        "DischargeTime": admitted + rng.integers(1, 20, count) * day,
        "Ward": [["north", "south"][i] for i in rng.integers(0, 2, count)],
    }
    pq.write_table(pa.table(admissions), "admissions.parquet")
    recipe, text = proposed()
    section = recipe["dataset"]
    assert keys(section) == {"admissions": "AdmissionID", "doctor": "code", "patient": "id"}
    assert links(section) == {"admissions": {"PatientID": "patient", "DoctorCode": "doctor"}}
    assert "4 cells name no row of patient" in note(text, "PatientID:")
    table = section["tables"]["admissions"]
    assert table["on_unknown_id"] == "count"
    assert (table["time"], table["epoch"]) == ("AdmissionTime", "milliseconds")
    assert "DischargeTime would do too" in note(text, "time:")
    assert section["tables"]["patient"]["columns"]["birth_date"] == "ignore"
    assert section["predict"]["table"] == "patient"
    assert ingest(**section).manifest.adjusted == {
        "admissions.parquet: foreign keys PatientID that name no row dropped": 4,
        **{name: size for name, size in ingest(**section).manifest.adjusted.items() if "tasks of no split" in name},
    }


def test_a_forum(ingest: Ingest, folder: Path) -> None:
    """Replies to replies, two keys to one table, users that names call otherwise, a link table with a key of its own."""
    users, posts = np.arange(1, 51), np.arange(1, 401)
    karma = {"id": users, "registered": days(50, span=50), "karma_total": rng.integers(0, 1000, 50)}
    save("users.tsv", pa.table(karma))
    parent = pa.array([None if i < 20 else int(rng.integers(1, i)) for i in range(400)], pa.int64())
    body = [f"text of {i}" for i in posts]
    author, editor = rng.integers(1, 51, 400), rng.integers(1, 51, 400)
    save("posts.tsv", pa.table({"id": posts, "author_user_id": author, "editor_id": editor, "parent_id": parent, "posted_at": days(400, "2021-04-01"), "body": body}))  # fmt: skip
    save("messages.tsv", pa.table({"id": np.arange(300), "sender_user": rng.integers(1, 51, 300), "receiver_user": rng.integers(1, 51, 300), "sent": days(300, "2021-04-01")}))  # fmt: skip
    recipe, text = proposed()
    section = recipe["dataset"]
    foreign = {"author_user_id": "users", "editor_id": "users", "parent_id": "posts"}
    assert section["tables"]["posts"]["foreign"] == foreign
    assert "by name it may be another table's" in note(text, "editor_id:")
    assert section["tables"]["messages"]["foreign"] == {"sender_user": "users", "receiver_user": "users"}
    assert section["tables"]["posts"]["columns"] == {"body": "ignore"}
    assert note(text, "body:").strip().startswith("is text of 400 different values in 400 rows")
    assert "written again later? Then it tells of the future" in note(text, "karma_total:")
    assert section["predict"]["table"] == "users"
    assert "via" in section["predict"]
    store = ingest(**section)
    assert "posts__parent_id__posts" in [one.name for one in store.manifest.edge_types]


def test_a_school_without_times(folder: Path) -> None:
    """Nothing has a time that can be read, so nothing is counted: what is missing is said, and the tables are there."""
    born = {"pupil_no": np.arange(30), "born": ["3.4.2010"] * 30, "class": np.arange(30) // 10}
    save("pupils.csv", pa.table(born))
    save("classes.csv", pa.table({"class": [0, 1, 2], "room": ["a", "b", "c"]}))
    pupils, classes, marks = (rng.integers(*ends, 90) for ends in ((0, 30), (0, 3), (1, 7)))
    save("marks.csv", pa.table({"pupil_no": pupils, "class": classes, "mark": marks}))
    recipe, text = proposed()
    section = recipe["dataset"]
    assert keys(section) == {"classes": "class", "pupils": "pupil_no"}
    assert links(section) == {"marks": {"pupil_no": "pupils", "class": "classes"}, "pupils": {"class": "classes"}}
    assert "marks:" in text
    assert note(text, "marks:").endswith("90 rows; a row is an edge")
    assert "no table with a time names the key of another: nothing can be counted" in text
    with pytest.raises(RecipeError, match="there is no table 'TABLE'"):
        build_recipe(recipe)


def test_a_warehouse_in_one_file(ingest: Ingest, folder: Path) -> None:
    """A DuckDB file: decimals, a link table, whole numbers that are no keys, a key that is one of another table's."""
    import duckdb

    with duckdb.connect("warehouse.duckdb") as connection:
        for statement in (
            "SELECT setseed(0.5)",
            "CREATE TABLE dim_product AS SELECT range AS product_sk, 'n' || range AS label, (range / 7)::DECIMAL(9, 2) AS price FROM range(30)",
            "CREATE TABLE dim_customer AS SELECT range AS customer_sk, DATE '2021-01-01' + (range % 50)::INT AS created FROM range(80)",
            "CREATE TABLE customer_details AS SELECT range AS customer_sk, range % 3 AS segment FROM range(80)",
            "CREATE TABLE fact_order AS SELECT range AS order_sk, (random() * 79)::INT AS customer_sk, TIMESTAMP '2021-03-01' + INTERVAL 1 HOUR * range AS ordered FROM range(5000)",
            "CREATE TABLE order_line AS SELECT (random() * 4999)::INT AS order_sk, (random() * 29)::INT AS product_sk, 1 + (random() * 4)::INT AS quantity FROM range(9000)",
        ):
            connection.execute(statement)
    recipe, text = proposed("warehouse.duckdb")
    section = recipe["dataset"]
    assert keys(section) == {"dim_customer": "customer_sk", "dim_product": "product_sk", "fact_order": "order_sk"}
    assert links(section) == {
        "customer_details": {"customer_sk": "dim_customer"},
        "fact_order": {"customer_sk": "dim_customer"},
        "order_line": {"order_sk": "fact_order", "product_sk": "dim_product"},
    }
    assert section["tables"]["order_line"]["columns"] == {"quantity": "category"}
    assert section["tables"]["dim_product"]["columns"] == {"label": "ignore", "price": "number"}
    assert note(text, "order_line:").endswith("a row is an edge")
    store = ingest(**section)
    assert store.manifest.task_type == "binary"
    assert {one.name for one in store.manifest.node_types} == {
        *("dim_customer", "dim_product", "fact_order", "customer_details", "task"),
    }


def test_a_table_without_names(folder: Path) -> None:
    """Its columns go by their places."""
    save("visits.csv", pa.table({"id": np.arange(9), "visitor": [1, 2, 0] * 3, "at": days(9)}))
    text = "".join(f"{i},{i / 3:.2f},{name}\n" for i, name in enumerate("aab" * 4))
    Path("visitors.csv").write_text(text)
    recipe, _ = proposed()
    table = recipe["dataset"]["tables"]["visitors"]
    assert table["header"] is False
    assert table["key"] == "0"
    assert table["columns"] == {"1": "number", "2": "category"}
    build_recipe(recipe)


def test_what_names_say() -> None:
    assert [singular(word) for word in ("customers", "categories", "boxes", "people", "glass", "bus")] == [
        *("customer", "category", "box", "person", "glass", "bu"),
    ]
    assert key_score("customer_id", "customers", 0) > key_score("shop_id", "customers", 1) > 0
    assert key_score("email", "customers", 0) == 0
    assert foreign_score("CustomerID", "orders", "customers", "id") == 4
    assert foreign_score("billing_customer_id", "orders", "customers", "customer_id") == 3
    assert foreign_score("quantity", "orders", "customers", "customer_id") == 0


def test_what_cannot_be_proposed(folder: Path) -> None:
    with pytest.raises(RecipeError, match=r"\.: there is no table; known are \.parquet"):
        propose_recipe(["."])
    with pytest.raises(DataError, match=r"none\.csv: there is no such file"):
        propose_recipe(["none.csv"])
    Path("empty.csv").write_text("a,b\n")
    with pytest.raises(DataError, match=r"empty\.csv: has no rows"):
        propose_recipe(["."])


@pytest.mark.parametrize(("count", "spoilt", "taken"), [(200, False, True), (20, False, False), (200, True, False)])
def test_texts_that_are_all_keys_of_one_table_name_its_rows(
    folder: Path, count: int, spoilt: bool, taken: bool
) -> None:
    """Names that say nothing, payer and payee of accounts, and values that cannot be others by chance."""
    names = [f"acc-{number:03d}" for number in range(count)]
    pq.write_table(pa.table({"account_id": names, "opened": days(count)}), folder / "accounts.parquet")
    payees = ["cash" if spoilt else names[0], *names[1:], *names]
    paid = {"payer": names[::-1] * 2, "payee": payees, "day": days(2 * count)}
    pq.write_table(pa.table(paid), folder / "payments.parquet")
    recipe, text = proposed(str(folder))
    section = recipe["dataset"]
    expected = {"payer": "accounts"} | ({} if spoilt else {"payee": "accounts"})
    assert links(section) == ({"payments": expected} if count > 30 else {})
    words = "unsure: by its values alone: all its texts are keys of accounts, and of no other table"
    assert (words in note(text, "payee: ")) == taken
    assert taken or "a foreign key? foreign: {payee: accounts}" in note(text, "payee: ")
