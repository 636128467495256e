"""Users, movies, genres and actors: who likes what, and what tells it. `python examples/movies.py data/movies`

A user likes two genres: six in seven of his likes are drawn from these, by how popular a movie is, the rest from all.
Actors play mostly in one genre. So a like is told by the genre of a movie, which stands in a relation of its own; how
popular a movie is tells less.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

GENRES, CAST, SEED = 20, 3, 0


def main(folder: Path, num_users: int, num_movies: int, num_likes: int) -> None:
    """Write `users`, `movies`, `likes`, `has_genre` and `plays` as Parquet; likes of one pair count once."""
    rng = np.random.default_rng(SEED)
    folder.mkdir(parents=True, exist_ok=True)
    genre = rng.integers(0, GENRES, num_movies)
    popular = rng.pareto(1.5, num_movies) + 0.1
    user, tastes = rng.integers(0, num_users, num_likes), rng.integers(0, GENRES, (num_users, 2))
    wanted = tastes[user, rng.integers(0, 2, num_likes)]
    movie = rng.choice(num_movies, num_likes, p=popular / popular.sum())
    of_taste = rng.random(num_likes) < 6 / 7
    for number in range(GENRES):
        rows, shelf = np.flatnonzero(of_taste & (wanted == number)), np.flatnonzero(genre == number)
        if len(shelf):
            movie[rows] = rng.choice(shelf, len(rows), p=popular[shelf] / popular[shelf].sum())
    pairs = np.unique(user * num_movies + movie)
    rng.shuffle(pairs)
    user, movie = np.divmod(pairs, num_movies)

    users = pa.array([f"u{number}" for number in range(num_users)])
    movies = pa.array([f"m{number}" for number in range(num_movies)])
    num_actors = max(GENRES, num_movies // 5)
    actors_genre = np.arange(num_actors) % GENRES
    actor = rng.integers(0, num_actors, (num_movies, CAST))
    actor[:, 1:] += genre[:, None] - actors_genre[actor[:, 1:]]  # most of the cast plays in its genre
    actor = np.where((actor < 0) | (actor >= num_actors), actor[:, :1], actor)

    write(folder, "users", id=users)
    write(folder, "movies", id=movies, year=rng.integers(1950, 2025, num_movies))
    write(folder, "likes", user=users.take(pa.array(user)), movie=movies.take(pa.array(movie)))
    write(folder, "has_genre", movie=movies, genre=[f"g{number}" for number in genre])
    cast = np.repeat(np.arange(num_movies), CAST)
    write(folder, "plays", actor=[f"a{number}" for number in actor.ravel()], movie=movies.take(pa.array(cast)))


def write(folder: Path, name: str, **columns: object) -> None:
    """Write one table."""
    pq.write_table(pa.table(columns), folder / f"{name}.parquet")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("data/movies"))
    parser.add_argument("--users", type=int, default=2000)
    parser.add_argument("--movies", type=int, default=500)
    parser.add_argument("--likes", type=int, default=30_000)
    options = parser.parse_args()
    main(options.folder, options.users, options.movies, options.likes)
