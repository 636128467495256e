"""Machines as Slurm and Kubernetes name them. The variables are those that Slurm 22.05 set in jobs of three nodes."""

from __future__ import annotations

from typing import Any

import pytest

from configs.errors import RecipeError
from flows.machines.schedulers import Placement, expand_nodes, scheduled_placement

JOB = {
    "SLURM_JOB_ID": "2071",
    "SLURM_JOB_NODELIST": "node[01-03]",
    "SLURM_JOB_NUM_NODES": "3",
    "SLURM_NNODES": "3",
    "SLURM_NODEID": "0",
    "SLURM_TASKS_PER_NODE": "1(x3)",
}
STEP = {
    **JOB,
    "SLURM_NODEID": "2",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "node[01-03]",
    "SLURM_STEP_NUM_NODES": "3",
    "SLURM_STEP_NUM_TASKS": "3",
}
POD = {
    "JOB_COMPLETION_INDEX": "1",
    "GRAPHMILL_MACHINES": "2",
    "GRAPHMILL_RENDEZVOUS": "graphmill-train-0.graphmill-train:29500",
}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node1", ["node1"]),
        ("node[01-03,7]", ["node01", "node02", "node03", "node7"]),
        ("a,b[8-11],c", ["a", "b8", "b9", "b10", "b11", "c"]),
        ("rack[0-1]n[1,3]", ["rack0n1", "rack0n3", "rack1n1", "rack1n3"]),
        ("node[098-101].cluster", ["node098.cluster", "node099.cluster", "node100.cluster", "node101.cluster"]),
        ("", []),
    ],
)
def test_node_lists(text: str, names: list[str]) -> None:
    assert list(expand_nodes(text)) == names


@pytest.mark.parametrize("text", ["node[1-", "node]1[", "node[a-b]", "node[]", "node[1-3", "node[1-2]]"])
def test_node_lists_that_cannot_be_read(text: str) -> None:
    with pytest.raises(RecipeError, match="node list"):
        list(expand_nodes(text))


def test_a_list_without_end() -> None:
    with pytest.raises(RecipeError, match="more than 4096 machines"):
        list(expand_nodes("n[1-999999999]"))


def test_a_step_of_slurm() -> None:
    hosts = ("node01", "node02", "node03")
    assert scheduled_placement(STEP) == Placement(3, 2, "node01:29571", hosts, "Slurm's job 2071")


def test_a_step_on_part_of_a_job() -> None:
    part = {**STEP, "SLURM_STEP_NODELIST": "node[01,03]", "SLURM_STEP_NUM_NODES": "2", "SLURM_NODEID": "1"}
    placement = scheduled_placement({**part, "SLURM_STEP_NUM_TASKS": "2"})
    assert (placement.hosts, placement.machine_rank) == (("node01", "node03"), 1)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        JOB,  # the job's script, which runs on the first node only
        {**STEP, "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NODELIST": "node01", "SLURM_STEP_NUM_TASKS": "1"},
        {"JOB_COMPLETION_INDEX": "1"},  # some other indexed Job
        {"GRAPHMILL_MACHINES": "2"},  # no Job
        {**POD, "GRAPHMILL_MACHINES": "1"},
    ],
)
def test_alone(environment: dict[str, str]) -> None:
    assert scheduled_placement(environment) is None


def test_a_pod() -> None:
    assert scheduled_placement(POD) == Placement(
        2, 1, "graphmill-train-0.graphmill-train:29500", (), "the indexed Job of Kubernetes"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"SLURM_STEP_NUM_TASKS": "6"}, r"6 tasks on 3 nodes.*--ntasks-per-node=1"),
        ({"SLURM_NODEID": "3"}, r"do not fit each other.*SLURM_NODEID=3"),
        ({"SLURM_STEP_NODELIST": "node[01-02]"}, r"do not fit each other"),
        ({"SLURM_STEP_NUM_NODES": "three"}, r"SLURM_STEP_NUM_NODES='three'.* is not a number"),
    ],
)
def test_contradictions_of_slurm(change: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        scheduled_placement({**STEP, **change})


@pytest.mark.parametrize("change", [{"JOB_COMPLETION_INDEX": "2"}, {"GRAPHMILL_RENDEZVOUS": ""}])
def test_contradictions_of_a_job(change: dict[str, str]) -> None:
    with pytest.raises(RecipeError, match="GRAPHMILL_RENDEZVOUS"):
        scheduled_placement({**POD, **change})
