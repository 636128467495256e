"""Users and their groups in files of the very form that YouTube's have, through the shipped recipes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.baseline_tables import RECIPES
from tasks.storage.artifacts import ArtifactStore
from tasks.storage.home import Home
from tasks.storage.manifests import DatasetManifest
from tasks.storage.outcomes import EvalReport
from tests.flows.conftest import graphmill

pytestmark = pytest.mark.timeout(900)

USERS, COMMUNITIES, LINKS = 1200, 6, 9000
SMALL = (
    *("model.dim=16", "train.samples=1000000", "train.threads=1", "train.device=cpu", "tracking.system_metrics=false"),
    *("dataset.labels.most=6", "evaluate.label_shares=0.05,0.1"),
)


def write_site(folder: Path) -> set[int]:
    """Write links within communities, mostly, and memberships: a large group for each, many small ones.

    Users are numbers from 1, a tab apart; some are members and have no link. Returns the members of large groups.
    """
    rng = np.random.default_rng(0)
    home = rng.integers(0, COMMUNITIES, USERS)
    near = np.argsort(home, kind="stable")
    first = rng.integers(0, USERS, LINKS)
    place = np.searchsorted(home[near], home[first]) + rng.integers(0, np.bincount(home).min(), LINKS)
    second = np.where(rng.random(LINKS) < 0.85, near[place], rng.integers(0, USERS, LINKS))
    chain = np.stack([np.arange(USERS - 1), np.arange(1, USERS)], 1)
    links = np.concatenate([np.stack([first, second], 1), chain]) + 1
    members = [(user, 100 * home[user] + 7) for user in range(USERS) if rng.random() < 0.5]
    members += [(user, 100 * int(rng.integers(COMMUNITIES)) + 7) for user in range(0, USERS, 9)]
    members = sorted(set(members))
    small = [(int(rng.integers(USERS)), 1000 + group) for group in range(300) for _ in range(3)]
    unlinked = [(USERS + 5, 7), (USERS + 6, 1001)]
    text = "".join(f"{user + 1}\t{group}\n" for user, group in (*members, *small, *unlinked))
    folder.mkdir(parents=True)
    with gzip.open(folder / "youtube-links.txt.gz", "wt") as file:
        file.writelines(f"{u}\t{v}\n" for u, v in links)
    with gzip.open(folder / "youtube-groupmemberships.txt.gz", "wt") as file:
        file.write(text)
    return {user + 1 for user, _ in members}


def test_the_recipe_of_youtube(tmp_path: Path) -> None:
    labelled = write_site(tmp_path / "site")
    home, folder = Home(tmp_path / "home"), tmp_path / "site"
    files = (
        f"dataset.edges.files={folder}/youtube-links.txt.gz",
        f"dataset.labels.files={folder}/youtube-groupmemberships.txt.gz",
    )
    done = graphmill(home.root, "run", str(RECIPES / "youtube-deepwalk.yaml"), *files, *SMALL, "--json")
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout.splitlines()[-1])
    keys = {stage["name"]: stage["key"] for stage in outcome["stages"]}
    data = ArtifactStore(home).load("ingest", keys["ingest"], DatasetManifest)
    assert data is not None
    assert (data.num_nodes, data.num_tasks, data.task_type) == (USERS, COMMUNITIES, "multilabel")
    assert sum(data.splits.values()) == len(labelled), "members of small groups alone are not labelled"
    assert data.adjusted[f"{folder}/youtube-groupmemberships.txt.gz: unknown ids dropped"] == 2
    found = ArtifactStore(home).load("evaluate", keys["evaluate"], EvalReport)
    assert found is not None
    shares = found.report["vectors"]["label_shares"]
    assert shares["rows"] == len(labelled)
    assert [one["share"] for one in shares["shares"]] == [0.05, 0.1]
    assert shares["shares"][1]["micro"] > 0.6, "a coin of six sides is right in 0.17"
    for page in home.root.rglob("report.html"):
        assert "F1 by the share of labels that are known" in page.read_text()
