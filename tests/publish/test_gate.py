"""The rule by which a version becomes champion."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from configs.errors import RecipeError
from configs.metric_names import metric_of
from tasks.publish.gate.rules import Candidate, Compared, controls_of, counts, decide, higher_is_better
from tasks.publish.tracking.version_tags import ModelVersion, gate_tags

OLD = Candidate("1", "valid/accuracy", 0.9, True)


def unasked() -> Compared:
    raise AssertionError("nobody had to score anything")


def scored(new: float, old: float | None, rows: int = 40, telling: int | None = None, **more: Any) -> Any:
    return lambda: Compared(new, old, rows, rows if telling is None else telling, "the data of demo", **more)


def version(tags: dict[str, str], number: str = "1") -> Candidate:
    return ModelVersion("demo", number, "", "", 0, tags).gate


def test_a_gate_metric_that_was_not_measured_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"gate_metric=valid/hits is not measured; there are valid/rmse, valid/mae$"):
        metric_of("hits", {"rmse": 1.5, "mae": 1.0}, "valid")


@pytest.mark.parametrize(
    ("new", "old", "higher", "promoted", "short"),
    [
        (0.5, 0.4, True, True, "0.5000 > v1's 0.4000"),
        (0.4, 0.5, True, False, "0.4000 < v1's 0.5000"),
        (0.5, 0.5, True, False, "0.5000 = v1's 0.5000"),
        (1.4, 1.5, False, True, "1.4000 < v1's 1.5000"),
        (1.6, 1.5, False, False, "1.6000 > v1's 1.5000"),
        (1.5, 1.5, False, False, "1.5000 = v1's 1.5000"),
    ],
)
def test_scores_on_the_same_rows_decide_and_ties_keep_the_champion(
    new: float, old: float, higher: bool, promoted: bool, short: str
) -> None:
    """What either had on its own data plays no part."""
    champion = Candidate("1", "valid/m", 99.0 if higher else 0.01, higher)
    decision = decide(Candidate("2", "valid/m", new, higher), champion, scored(new, old))
    assert (decision.promote, decision.short, decision.loud) == (promoted, short, False)
    assert f"valid/m {new:.4f}" in decision.reason
    assert f"version 1's {old:.4f}, both measured on the same 40 validation rows of the data of demo" in decision.reason


def test_the_reason_says_which_rows_the_champion_knew() -> None:
    new = Candidate("2", "valid/accuracy", 0.5, True)

    def reason(**more: Any) -> str:
        return decide(new, OLD, scored(0.5, 0.4, **more)).reason

    assert reason().endswith("of the data of demo")
    assert reason(trained_on=3).endswith(", without 3 that the champion was trained on")
    assert reason(trained_on=3, left_out=False).endswith("the champion was trained on 3: that favours it")
    assert reason(trained_on=None).endswith("; which of them the champion was trained on is not known")
    assert ", as recorded on the same 40 " in reason(recorded=True)


@pytest.mark.parametrize(
    ("rows", "telling", "said"),
    [(14, 14, "14 rows"), (29, 29, "29 rows"), (30, 30, ""), (853, 13, "13 of the rarer kind")],
)
@pytest.mark.parametrize("value", [0.5, 0.3])
def test_a_decision_by_few_rows_is_a_loud_one(rows: int, telling: int, said: str, value: float) -> None:
    decision = decide(Candidate("2", "valid/accuracy", value, True), OLD, scored(value, 0.4, rows, telling))
    assert (decision.promote, decision.loud) == (value > 0.4, bool(said))
    assert decision.reason.endswith(f"; only {said}: chance decides as much as the models") == bool(said)


@pytest.mark.parametrize(
    ("before", "interval", "doubtful", "promoted", "loud"),
    [
        (0.42, (0.01, 0.03), {"features"}, False, True),  # shuffled labels, say: neither model knows anything of them
        (0.42, (0.01, 0.03), set(), True, True),  # another world, which the new model knows
        (0.42, (0.02, 0.03), {"features"}, True, False),
        (0.42, (0.01, 0.5), {"features"}, True, False),  # too few rows to say that it is worse
        (0.02, (0.01, 0.03), {"features"}, True, False),  # it never was better
        (0.42, None, {"features"}, True, False),
    ],
)
def test_a_champion_falls_to_chance_by_what_surely_knows_more(
    before: float, interval: tuple[float, float] | None, doubtful: set[str], promoted: bool, loud: bool
) -> None:
    new = Candidate("2", "valid/ap", 0.05, True, controls={"majority": 0.014, "features": 0.04})
    new = replace(new, doubtful=frozenset(doubtful))
    old = Candidate("1", "valid/ap", before, True)
    decision = decide(new, old, scored(0.05, 0.02, interval=interval), name="demo")
    assert (decision.promote, decision.loud) == (promoted, loud)
    text = "; version 1 had 0.4200 on its own data and is here not surely above the majority class (0.0140): look"
    assert (text in decision.reason) == loud
    unsure = "; this one's 0.0500 is not surely above a linear model that sees only the rows' own features (0.0400); "
    assert (f"{unsure}by hand: graphmill promote demo@2" in decision.reason) == (not promoted)


@pytest.mark.parametrize(
    ("now", "before", "unit", "loud"),
    [
        ("2023", "2025", "years", True),
        ("2025", "2023", "years", False),
        ("2025-01", "2025-06-30", "seconds", True),
        ("5", "12", "number", True),
        ("2023", "2023", "years", False),
        ("", "2025", "years", False),
        ("2023", "", "years", False),
        ("2023", "no moment", "seconds", False),
    ],
)
@pytest.mark.parametrize("old_value", [0.4, None])
def test_a_model_of_older_data_takes_over_with_a_loud_word(
    now: str, before: str, unit: Any, loud: bool, old_value: float | None
) -> None:
    new = Candidate("2", "valid/accuracy", 0.5, True, as_of=now, unit=unit)
    champion = version(gate_tags(replace(OLD, as_of=before)))
    decision = decide(new, champion, scored(0.5, old_value), name="demo")
    assert (decision.promote, decision.loud) == (True, loud or old_value is None)
    told = f"; version 1's data is newer (as of {before}, this one's {now}): if the older was not meant to take over, "
    assert (f"{told}graphmill promote demo@1" in decision.reason) == loud
    assert not decide(replace(new, value=0.1), champion, scored(0.1, 0.4)).loud, "it stays champion: nothing to look at"


def test_a_champion_that_cannot_score_gives_way_with_a_loud_word() -> None:
    new = Candidate("2", "valid/accuracy", 0.5, True, controls={"majority": 0.4})
    decision = decide(new, OLD, scored(0.5, None, why_not="it knows its own nodes only."))
    assert decision.promote
    assert decision.loud
    assert decision.reason == (
        "nothing was compared, because version 1, champion so far, cannot score the data of demo: it knows its own "
        "nodes only. So this version takes over: valid/accuracy 0.5000 beats the majority class (0.4000)"
    )
    below = Candidate("2", "valid/accuracy", 0.5, True, controls={"majority": 0.5})
    assert not decide(below, OLD, unasked).promote
    other = decide(new, OLD, scored(0.5, None, why_not="It knows others not. Train anew.", other_graph=True))
    assert (other.promote, other.loud, other.short) == (True, True, "v1 is of another graph")
    assert other.reason == (
        "nothing was compared, because version 1 is of another graph; this one takes over: valid/accuracy 0.5000 beats "
        "the majority class (0.4000)"
    )


@pytest.mark.parametrize("old", [None, OLD])
@pytest.mark.parametrize(("value", "control", "higher"), [(0.5, 0.5, True), (0.5, 0.6, True), (187.0, 12.0, False)])
def test_a_model_that_does_not_beat_its_controls_is_not_promoted(
    old: Candidate | None, value: float, control: float, higher: bool
) -> None:
    beaten = -1.0 if higher else 999.0
    new = Candidate("2", "valid/accuracy", value, higher, controls={"majority": beaten, "mean": control})
    decision = decide(new, old, unasked, name="demo")
    assert not decision.promote
    assert decision.loud
    assert decision.short == "not above mean"
    word = "does not beat" if value == control else "is below" if higher else "is above"
    assert f"{value:.4f} {word} the training split's mean (mae: its median) ({control:.4f})" in decision.reason
    assert "majority" not in decision.reason
    assert "graphmill promote demo@2 --force" in decision.reason


def test_controls_are_those_of_the_gate_metric_on_the_validation_split() -> None:
    controls = {
        "majority": {"valid": {"accuracy": 0.2}, "test": {"accuracy": 0.9}},
        "features": {"test": {"accuracy": 0.9}},
        "mean": {"valid": {"rmse": 1.0, "accuracy": math.nan}},
    }
    assert controls_of("valid/accuracy", controls) == {"majority": 0.2}
    assert controls_of("valid/accuracy", {}) == {}
    boosted = controls | {"boosted": {"valid": {"accuracy": 0.3}}}
    assert controls_of("valid/accuracy", boosted) == {"majority": 0.2, "boosted": 0.3}
    assert [name for name in boosted if counts(name, "simple")] == ["majority", "features", "mean"]
    assert [name for name in boosted if counts(name, "all")] == list(boosted)
    assert not any(counts(name, "none") for name in boosted)


def test_other_controls_than_the_simple_ones_must_not_be_better() -> None:
    equal = Candidate("1", "valid/map", 0.1, True, controls={"popular": 0.09, "own_past": 0.1})
    assert decide(equal, None, unasked).promote, "the dot product of a model's own vectors is the model"
    below = replace(equal, controls={"popular": 0.05, "own_past": 0.102})
    decision = decide(below, None, unasked)
    assert (decision.promote, decision.loud) == (False, True)
    assert decision.reason.startswith(
        "valid/map 0.1000 is below what the entity itself was linked to most before, then what is popular (0.1020)"
    )


def test_what_may_be_above_chance_by_chance_is_no_champion() -> None:
    new = Candidate("1", "valid/rocauc", 0.506, True, controls={"chance": 0.5, "features": 0.5}, doubtful=frozenset())
    assert decide(new, None, unasked).promote
    decision = decide(replace(new, doubtful=frozenset({"chance", "features"})), None, unasked)
    assert (decision.promote, decision.loud) == (False, True)
    assert "rocauc 0.5060 does not beat chance (0.5000) by more than chance; by hand" in decision.reason
    low = replace(
        new, value=0.49, controls={"chance": 0.5, "majority": 0.48}, doubtful=frozenset({"chance", "majority"})
    )
    said = "is below chance (0.5000) and does not beat the majority class (0.4800) by more than chance; by hand"
    assert said in decide(low, None, unasked).reason
    assert decide(replace(new, doubtful=frozenset({"features"})), None, unasked).promote


def test_what_is_not_comparable_stays_and_says_so() -> None:
    by_hand = decide(Candidate("8", "valid/accuracy", 0.9, True), Candidate("7", "", math.nan, True), unasked)
    other = decide(Candidate("8", "valid/f1", 0.9, True), OLD, unasked, name="demo")
    for decision, how in ((by_hand, "chosen by hand"), (other, "chosen by valid/accuracy, this one has valid/f1")):
        assert not decision.promote
        assert decision.loud
        assert how in decision.reason
    assert "graphmill promote demo@8" in other.reason
    assert not decide(Candidate("2", "valid/rmse", math.nan, False), None, unasked).promote


def test_tags_bring_a_candidate_and_its_decision_back() -> None:
    new = Candidate("2", "valid/rmse", 1.25, False, "data", "rows", {"mean": 2.5})
    assert version(gate_tags(new), "2") == new
    decision = decide(new, Candidate("1", "valid/rmse", 9.0, False), scored(1.25, 1.5))
    outcome = {"graphmill.gate": "champion", "graphmill.gate_reason": decision.reason}
    back = version(gate_tags(new) | outcome, "2")
    again = decide(back, back, unasked)
    assert (again.promote, again.reason) == (True, decision.reason), "a rerun says the same"
    promoted_by_hand = version(gate_tags(new) | outcome | {"graphmill.gate": "not champion"}, "2")
    assert decide(promoted_by_hand, promoted_by_hand, unasked).reason == "stays champion with valid/rmse 1.2500"
    broken = {"graphmill.gate_value": "x", "graphmill.gate_controls": "[1"}
    assert math.isnan(version(broken).value)
    assert version(broken).controls == {}


def test_names_of_errors_are_lower_is_better() -> None:
    assert higher_is_better("valid/accuracy", "rmse", False)
    assert not higher_is_better("valid/mae", "accuracy", True)
    assert not higher_is_better("valid/rmse", "rmse", False)
