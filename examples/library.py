"""Tables with typed nodes for the tutorial: books, their authors and their readers. `python examples/library.py data`

An author writes mostly one genre and a reader borrows mostly one, so both tell what a book is about; its pages tell a
little. One genre in five is missing.
"""

from __future__ import annotations

import csv
import random
import sys
from collections.abc import Iterable
from pathlib import Path

GENRES = ("crime", "history", "poetry", "travel")
PAGES = {"crime": 380, "history": 450, "poetry": 140, "travel": 260}
LANGUAGES = ("de", "en", "fr")
NUM_BOOKS, NUM_AUTHORS, NUM_READERS, NUM_LOANS, SEED = 2000, 600, 1500, 12000, 11


def main(folder: Path) -> None:
    """Write `books.csv`, `authors.csv`, `readers.csv`, `wrote.csv` and `borrowed.csv`."""
    draw = random.Random(SEED)
    folder.mkdir(parents=True, exist_ok=True)
    genres = [draw.choice(GENRES) for _ in range(NUM_BOOKS)]
    shelves = {genre: [book for book in range(NUM_BOOKS) if genres[book] == genre] for genre in GENRES}

    def books() -> Iterable[tuple[object, ...]]:
        for book, genre in enumerate(genres):
            pages = max(40, round(draw.gauss(PAGES[genre], 100)))
            yield f"b{book}", genre if draw.random() < 0.8 else "", pages, draw.choice(LANGUAGES)

    def wrote() -> Iterable[tuple[object, ...]]:
        favourites = [draw.choice(GENRES) for _ in range(NUM_AUTHORS)]
        by_genre = {genre: [who for who in range(NUM_AUTHORS) if favourites[who] == genre] for genre in GENRES}
        for book, genre in enumerate(genres):
            who = draw.choice(by_genre[genre]) if draw.random() < 0.7 else draw.randrange(NUM_AUTHORS)
            yield f"a{who}", f"b{book}"

    def borrowed() -> Iterable[tuple[object, ...]]:
        favourites = [draw.choice(GENRES) for _ in range(NUM_READERS)]
        for _ in range(NUM_LOANS):
            who = draw.randrange(NUM_READERS)
            book = draw.choice(shelves[favourites[who]]) if draw.random() < 0.5 else draw.randrange(NUM_BOOKS)
            yield f"r{who}", f"b{book}"

    write(folder / "books.csv", ("id", "genre", "pages", "language"), books())
    write(folder / "authors.csv", ("id", "born"), ((f"a{who}", draw.randint(1900, 1995)) for who in range(NUM_AUTHORS)))
    write(folder / "readers.csv", ("id", "age"), ((f"r{who}", draw.randint(8, 90)) for who in range(NUM_READERS)))
    write(folder / "wrote.csv", ("author", "book"), wrote())
    write(folder / "borrowed.csv", ("reader", "book"), borrowed())


def write(path: Path, header: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> None:
    """Write a CSV file."""
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "data"))
