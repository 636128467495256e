from __future__ import annotations

from pathlib import Path

from tasks.train.ranks.rank_logs import RankLogs


def test_whole_lines_are_said_once_with_their_rank(tmp_path: Path) -> None:
    said: list[str] = []
    logs = RankLogs(tmp_path, said.append, said.append)
    logs.look()
    first, second = tmp_path / "rank-0.log", tmp_path / "rank-1.log"
    first.write_bytes(b"one\ntwo\nhal")
    second.write_bytes("ünde\n\n".encode())
    logs.look()
    assert said == ["rank 0: one", "rank 0: two", "rank 1: ünde"]
    with first.open("ab") as file:
        file.write(b"f\n\xff\n")
    logs.look()
    assert said[3:] == ["rank 0: half", "rank 0: �"]
    logs.look()
    assert len(said) == 5


def test_a_new_attempt_begins_anew_and_a_flood_is_cut(tmp_path: Path) -> None:
    said: list[str] = []
    logs = RankLogs(tmp_path, said.append, said.append)
    path = tmp_path / "rank-3.log"
    path.write_text("".join(f"{number}\n" for number in range(250)))
    logs.look()
    assert len(said) == 101
    assert said[-1] == f"rank 3: 150 more lines in {path}"
    path.write_text("again\n")
    logs.start_again()
    logs.look()
    assert said[-1] == "rank 3: again"


def test_warnings_are_the_stages_own_and_said_once(tmp_path: Path) -> None:
    said: list[str] = []
    warned: list[str] = []
    logs = RankLogs(tmp_path, said.append, warned.append)
    for rank in range(2):
        (tmp_path / f"rank-{rank}.log").write_text("warning: 3 nodes have no edge\nwarnings: none\n")
    logs.look()
    logs.start_again()
    logs.look()
    assert warned == ["3 nodes have no edge"]
    assert said == 2 * ["rank 0: warnings: none", "rank 1: warnings: none"]


def test_of_the_starter_s_words_those_for_people_are_passed_on(tmp_path: Path) -> None:
    said: list[str] = []
    warned: list[str] = []
    logs = RankLogs(tmp_path, said.append, warned.append)
    (tmp_path / "launch.log").write_text("W1126 gloo: lo\nmessage: waiting for machine 1\nwarning: machine 2\n")
    logs.look()
    assert (said, warned) == (["waiting for machine 1"], ["machine 2"])
