"""What columns and tables are called, and what that says about them."""

from __future__ import annotations

import re

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def _split(text: str) -> frozenset[str]:
    return frozenset(text.split())


_KEY_WORDS = _split("id key code no nr num number uuid guid ref pk fk sk hash")
_IDS = _split("id uuid guid pk fk sk")
_NO_KEY = _split("name title email mail phone description text comment url address")
_UP = _split("parent manager boss supervisor previous predecessor root reply super")
_FIRST = _split(
    """created create placed ordered joined registered signup opened posted written sent started start inserted
    occurred happened published"""
)
_TIME_WORDS = _split("time timestamp ts date datetime at on when day")
_LATER = _split(
    """updated update modified deleted closed ended end finished delivered shipped returned cancelled canceled
    expires expiry due last until valid resolved paid completed left terminated"""
)
_KEPT_UP = _split(
    """total totals status last latest current lifetime ltv balance active churned count counts updated average avg
    rank"""
)
_PEOPLE_TEXT = """
    customer user account client patient member subscriber person people driver employee seller student supplier
    vendor player applicant borrower card policy device machine product item
"""
PREDICTED = _PEOPLE_TEXT.split()
"""What rows are called that are usually predicted."""
_EVENTS_TEXT = """
    order purchase transaction payment visit booking rental sale invoice session login event admission claim trip
    subscription call click message ticket review
"""
COUNTED = _EVENTS_TEXT.split()
"""What rows are called that are usually counted."""


def words(name: str) -> list[str]:
    """Return the words of a name, in small letters: `customerId`, `customer_id` and `CUSTOMER ID` have the same."""
    return [word.lower() for word in _WORD.findall(name)]


def singular(word: str) -> str:
    """Return a word without its plural ending."""
    if word == "people":
        return "person"
    for ending, new in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh")):
        if word.endswith(ending) and len(word) > len(ending) + 1:
            return word[: -len(ending)] + new
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 2 else word


def entity(table: str) -> list[str]:
    """Return the words of what a row of a table is: `dim_customers` to `customer`."""
    telling = [word for word in words(table) if word not in ("tbl", "table", "dim", "fact", "t", "stg", "raw")]
    return [*telling[:-1], singular(telling[-1])] if telling else words(table)


def key_score(column: str, table: str, place: int) -> int:
    """Return how much a column is called like the key of its table; `place` is its place in it. 0: not at all."""
    column_words, row = words(column), entity(table)
    if not column_words or set(column_words) & _NO_KEY:
        return 0
    if (
        column_words == ["id"]
        or (column_words[:-1] == row and column_words[-1] in _KEY_WORDS)
        or (row[-1:] == column_words[:-1] and column_words[-1] == "id")
    ):
        return 5
    if column_words in (["uuid"], ["key"], ["pk"], row) or (
        column_words[0] in ("pk", "id") and column_words[1:] == row
    ):
        return 4
    if column_words[-1] in _KEY_WORDS:
        return 3 if place == 0 else 2
    return 1 if place == 0 else 0


def is_id(column: str) -> bool:
    """Whether a column is called an id: `type_id`, `pk_order`; a `number` may be an amount."""
    column_words = words(column)
    return bool(column_words) and bool(_IDS & {column_words[0], column_words[-1]})


def foreign_score(column: str, table: str, target: str, key: str) -> int:
    """Return how much a column is called like a foreign key to a table. 0: not at all; 3: it can hardly be another."""
    column_words, row, named = words(column), entity(target), words(key)
    core = [word for word in column_words if word not in _KEY_WORDS]
    key_like = len(core) < len(column_words)
    if column_words == named and not set(named) <= _KEY_WORDS:
        return 4 if len(named) > 1 else 3
    if column_words == [*row, *named]:  # account_iban, of accounts whose key is iban
        return 4
    if core == row or (core and core == row[-1:]):
        return 4 if key_like else 3
    if table == target and set(core) & _UP:
        return 3
    if len(named) > 1 and column_words[-len(named) :] == named:
        return 3
    if core[-len(row) :] == row and (key_like or len(row) > 1):
        return 3
    if core[-1:] == row[-1:]:
        return 2
    if len(named) == 1 and column_words[-1:] == named and not set(named) & (_KEY_WORDS | _NO_KEY):
        return 2  # sender_iban
    return 1 if key_like and core else 0


def time_score(column: str) -> int:
    """Return how much a column is called like the time when a row came to be known; below 0: like a later time."""
    column_words = set(words(column))
    if is_birth(column) or column_words & _LATER:
        return -2
    if column_words & _FIRST:
        return 3
    return 2 if column_words & {"timestamp", "datetime", "time", "ts"} else (1 if column_words & _TIME_WORDS else 0)


def is_birth(column: str) -> bool:
    """Whether a column is called like when somebody was born: a poor time of a row, and known from its start."""
    column_words = words(column)
    return bool(set(column_words) & {"birthday", "born", "dob"}) or "birth" in "".join(column_words)


def is_kept_up_to_date(column: str) -> bool:
    """Whether a column is called like a figure or state that is written again later: it would tell of the future."""
    return bool(set(words(column)) & _KEPT_UP)


def usual_score(table: str, usual: list[str]) -> int:
    """Return how much a table is called like one of the `usual` ones, of which the first counts most; 0: not at all."""
    last = entity(table)[-1:]
    return len(usual) - usual.index(last[0]) if last and last[0] in usual else 0
