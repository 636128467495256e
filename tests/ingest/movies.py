"""Users, movies, genres, actors: what a user likes follows from movies' genres, which stand in another relation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq


def movie_tables(folder: Path, users: int = 60, movies: int = 41, likes: int = 900, genres: int = 4) -> dict[str, Any]:
    """Write the tables into a folder, ids as texts, and return the options of the data set."""
    rng = np.random.default_rng(3)
    folder.mkdir(parents=True, exist_ok=True)
    genre, taste = np.arange(movies) % genres, np.arange(users) % genres
    user = rng.integers(0, users, likes)
    movie = np.where(rng.random(likes) < 0.9, rng.integers(0, movies // genres, likes) * genres + taste[user], 0)
    user, movie = np.unique(np.stack([user, movie]), axis=1)
    order = rng.permutation(len(user))
    user, movie = user[order], movie[order]
    names = {"user": [f"u{n}" for n in range(users)], "movie": [f"m{n}" for n in range(movies)]}
    part = np.array(["train", "train", "train", "valid", "test"])[np.arange(len(user)) % 5]
    columns = {"who": np.array(names["user"])[user], "what": np.array(names["movie"])[movie]}
    pq.write_table(pa.table({**columns, "day": np.arange(len(user)), "part": part}), folder / "likes.parquet")
    of_genre = pa.table({"movie": names["movie"], "genre": [f"g{n}" for n in genre]})
    pc.write_csv(of_genre, folder / "has_genre.csv")
    cast = {"actor": [f"a{n}" for n in range(movies)], "movie": names["movie"], "fee": rng.random(movies)}
    pq.write_table(pa.table(cast), folder / "plays.parquet")
    pq.write_table(pa.table({"id": names["user"]}), folder / "users.parquet")
    pq.write_table(pa.table({"id": names["movie"], "year": np.arange(movies) + 1950.0}), folder / "movies.parquet")
    nodes = [
        {"type": "user", "files": str(folder / "users.parquet")},
        {"type": "movie", "files": str(folder / "movies.parquet"), "features": ["year"]},
    ]
    ends = {"source": "actor", "source_type": "actor", "target": "movie", "target_type": "movie"}
    edges = [
        {"relation": "plays", "files": str(folder / "plays.parquet"), **ends},
        {
            **{"relation": "likes", "files": str(folder / "likes.parquet"), "source": "who", "target": "what"},
            **{"source_type": "user", "target_type": "movie", "time": "day"},
        },
        {
            **{"relation": "has_genre", "files": str(folder / "has_genre.csv"), "source": "movie", "target": "genre"},
            **{"source_type": "movie", "target_type": "genre"},
        },
    ]
    return {"name": "tables", "task": "link", "target_relation": "likes", "nodes": nodes, "edges": edges}
