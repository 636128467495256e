"""Who is champion: the rule by which a new model version takes the alias, as pure functions.

Models are compared on the same rows of the same data or not at all; `decide` asks the cases in the order of
docs/pages/models-in-use.md ("The champion"). Who was champion when is a tag of the registered model (`Move`).
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

from configs.moments import TimeUnit, is_earlier, normalise_as_of
from tasks.storage.controls import CONSTANT_CONTROLS, CONTROLS

CHAMPION = "champion"
_FEW_ROWS = 30
"""Below so many a single row moves the value by more than models usually differ."""


@dataclass(frozen=True)
class Candidate:
    """What the gate knows of a model version."""

    version: str
    metric: str
    """`split/metric`."""
    value: float
    """On its own data."""
    higher_is_better: bool
    dataset: str = ""
    """Digest of the data that it was measured on."""
    prepared: str = ""
    """Digest of the prepared rows that it was measured on, and of how: equal ones are the same measurement."""
    controls: Mapping[str, float] = field(default_factory=dict)
    """Control to its value of the same metric on the same rows; those that were measured."""
    doubtful: frozenset[str] = frozenset()
    """Controls that it beats by no more than other rows of the same kind might undo."""
    promoted_because: str = ""
    """Why the gate made it champion, where it did."""
    as_of: str = ""
    """Moment of the snapshot that it was trained on; empty: of no snapshot, or not known."""
    unit: TimeUnit = "number"
    """What the times of its data count."""
    is_layout: bool = False
    """Whether it is looked at, and predicts nothing."""
    control: str = ""
    """The control that is published in place of the model."""

    @property
    def shown(self) -> str:
        """Metric and value, and of what where that is a control."""
        of = f" of {controls_named([self.control])}, published in place of the model" if self.control else ""
        return f"{self.metric} {self.value:.4f}{of}"

    def beats(self, value: float) -> bool:
        """Whether its value is better than another one of the same metric."""
        return self.value > value if self.higher_is_better else self.value < value

    @property
    def unbeaten(self) -> dict[str, float]:
        """The controls that are better than this model; of the simple ones (`Control.gates`) also those as good.

        Of those that say the same of every row also those that it may be above by chance.
        """
        return {
            name: value
            for name, value in self.controls.items()
            if (not self.beats(value) and (_is_simple(name) or value != self.value))
            or (name in CONSTANT_CONTROLS and name in self.doubtful)
        }

    @property
    def below_controls(self) -> str:
        """What to say of a model that has `unbeaten` controls."""
        better, others = dict[str, float](), dict[str, float]()
        for name, bar in self.unbeaten.items():
            (others if self.beats(bar) or bar == self.value else better)[name] = bar
        said = [f"is {'below' if self.higher_is_better else 'above'} {controls_text(better)}"] if better else []
        if others:
            by_chance = " by more than chance" if any(map(self.beats, others.values())) else ""
            said.append(f"does not beat {controls_text(others)}{by_chance}")
        return f"{self.shown} {' and '.join(said)}"


@dataclass(frozen=True)
class Compared:
    """A new version and the champion on the same rows."""

    new: float
    old: float | None
    """None: the champion cannot score this data."""
    rows: int
    """How many both scored."""
    telling: int
    """By how many of them the metric's noise goes: of the rarer kind, say (`Prediction.telling_rows`)."""
    data: str
    """Which data, for people."""
    interval: tuple[float, float] | None = None
    """Where the champion's value lies on draws of the rows (`Draws.interval`), where it was scored anew."""
    recorded: bool = False
    """Whether both values are those of the evaluations, which measured the same prepared rows."""
    why_not: str = ""
    """Why the champion cannot score this data."""
    other_graph: bool = False
    """Whether that is because it knows the nodes of its own graph only, as vectors do."""
    untrusted: bool = False
    """Whether that is only because nobody has allowed its code to run here."""
    trained_on: int | None = 0
    """Validation rows that the champion was trained on; None: not known."""
    left_out: bool = True
    """Whether those were left out for both. Not where nothing could be measured without them."""

    @property
    def where(self) -> str:
        """On what both were measured, in words."""
        how = "as recorded on" if self.recorded else "both measured on"
        text = f"{how} the same {self.rows:,} validation rows of {self.data}"
        if self.trained_on is None:
            return f"{text}; which of them the champion was trained on is not known"
        if not self.trained_on:
            return text
        if self.left_out:
            return f"{text}, without {self.trained_on:,} that the champion was trained on"
        return f"{text}, of which the champion was trained on {self.trained_on:,}: that favours it"


@dataclass(frozen=True)
class Decision:
    """Whether the alias moves, and why, in words."""

    promote: bool
    reason: str
    short: str = ""
    """The same in a few words, for tables."""
    loud: bool = False
    """Whether somebody should look at it."""
    compared: Compared | None = None


def counts(control: str, which: str) -> bool:
    """Whether a control keeps a model below it from becoming champion; `which`: `tracking.gate_controls`."""
    return which == "all" or (which == "simple" and _is_simple(control))


def controls_of(gate: str, controls: Mapping[str, Mapping[str, Mapping[str, float]]]) -> dict[str, float]:
    """Return the gate metric's value of each control that has one (see `EvalReport.controls`)."""
    split, _, name = gate.partition("/")
    every = {control: values.get(split, {}).get(name) for control, values in controls.items()}
    return {control: value for control, value in every.items() if value is not None and not math.isnan(value)}


def higher_is_better(metric: str, primary: str, primary_higher: bool) -> bool:
    """Whether more of `split/metric` is better: the evaluator's word for its own metric, else by name."""
    name = metric.rpartition("/")[2]
    return primary_higher if name == primary else name not in {"rmse", "mae", "mse", "loss"}


def decide(
    new: Candidate,
    old: Candidate | None,
    compare: Callable[[], Compared],
    *,
    name: str = "NAME",
    leave_alone: bool = False,
) -> Decision:
    """Decide whether a new version takes the alias from the present champion, `old` (None: there is none).

    `compare` scores both on the same rows, and is called only where that decides; `name` is that of the registered
    model, for the command that decides otherwise; `leave_alone`: the run was not asked to choose a champion.
    """
    by_hand = f"graphmill promote {name}@{new.version}"
    if old is not None and old.version == new.version:
        return Decision(True, new.promoted_because or f"stays champion with {new.shown}", "is champion")
    if leave_alone:
        reason = f"{new.shown}; a run with --no-promote leaves the champion alone, and so does a backfill (graphmill "
        reason += f"backfill create ... --promote lets the gate choose; by hand: {by_hand})"
        return Decision(False, reason, "left alone")
    if math.isnan(new.value):
        return Decision(False, f"{new.metric} is not a number", "not a number", loud=True)
    if unbeaten := new.unbeaten:
        reason = f"{new.below_controls}; by hand all the same: {by_hand} --force (tracking.gate_controls says which "
        reason += "controls count)"
        return Decision(False, reason, f"not above {next(iter(unbeaten))}", loud=True)
    if old is None:
        return Decision(True, f"the first version with {new.shown}", "the first")
    moments = f"(as of {old.as_of}, this one's {new.as_of})"
    if new.is_layout and is_older(new, old):
        reason = f"version {old.version} is of newer data {moments}; by hand: {by_hand}"
        return Decision(False, reason, f"v{old.version} is newer")
    if new.is_layout:
        return Decision(True, f"the newest layout, with {new.shown}", "the newest")
    if old.metric != new.metric or old.higher_is_better != new.higher_is_better:
        reason = f"the champion (version {old.version}) was chosen by {old.metric or 'hand'}, this one has {new.metric}"
        reason += f": not comparable; set tracking.gate_metric to the champion's, or move the alias by hand: {by_hand}"
        return Decision(False, reason, "another metric", loud=True)
    compared = compare()
    is_scored = compared.old is not None and not compared.untrusted
    decision = (_by_scores if is_scored else _without_scores)(new, old, compared, by_hand)
    if decision.promote and is_older(new, old):
        back = f"if the older was not meant to take over, graphmill promote {name}@{old.version}"
        reason = f"{decision.reason}; version {old.version}'s data is newer {moments}: {back}"
        return replace(decision, reason=reason, loud=True)
    return decision


def is_older(new: Candidate, old: Candidate) -> bool:
    """Whether a model was trained on an earlier snapshot than another; not where that is not known."""
    try:
        return is_earlier(normalise_as_of(new.as_of), normalise_as_of(old.as_of), new.unit)
    except ValueError:  # one is of no snapshot, or somebody altered the registry's record
        return False


def _without_scores(new: Candidate, old: Candidate, compared: Compared, by_hand: str) -> Decision:
    if compared.untrusted:
        reason = f"version {old.version} stays champion, not compared with this one's {new.shown}: {compared.why_not}"
        reason += f" Or choose by hand: {by_hand}"
        return Decision(False, reason, f"v{old.version} is not trusted", loud=True, compared=compared)
    below = {name: value for name, value in new.controls.items() if new.beats(value)}
    beaten = f"{new.shown} " + (f"beats {controls_text(below)}" if below else "has no controls to beat")
    if compared.other_graph:
        reason = f"version {old.version} is of another graph; this one takes over: {beaten}"
        short = f"v{old.version} is of another graph"
    else:
        why_not = f"cannot score {compared.data}: {compared.why_not.rstrip('.')}"
        reason = f"version {old.version}, champion so far, {why_not}. So this version takes over: {beaten}"
        short = f"v{old.version} cannot score"
    return Decision(True, f"nothing was compared, because {reason}", short, loud=True, compared=compared)


def _by_scores(new: Candidate, old: Candidate, compared: Compared, by_hand: str) -> Decision:
    assert compared.old is not None
    same_rows = replace(new, value=compared.new)
    better = same_rows.beats(compared.old)
    word = "beats" if better else "equals" if compared.new == compared.old else "does not beat"
    sign = "=" if word == "equals" else ">" if compared.new > compared.old else "<"
    few = compared.telling < _FEW_ROWS
    fallen = ""  # worse than on its own data beyond noise, and no surer than what learnt nothing: shuffled labels, say
    bars = {name: bar for name, bar in new.controls.items() if name in CONSTANT_CONTROLS}
    if compared.interval is not None and bars:
        worst, best = compared.interval if new.higher_is_better else compared.interval[::-1]
        if old.beats(best) and not all(replace(new, value=worst).beats(bar) for bar in bars.values()):
            on_its_own = f"version {old.version} had {old.value:.4f} on its own data"
            fallen = f"{on_its_own} and is here not surely above {controls_text(bars)}"
    doubt = controls_text({name: bar for name, bar in new.controls.items() if name in new.doubtful})
    promote = better and not (fallen and doubt)
    text = [f"{same_rows.shown} {word} version {old.version}'s {compared.old:.4f}, {compared.where}"]
    short = f"{compared.new:.4f} {sign} v{old.version}'s {compared.old:.4f}"
    if few:
        kind = "rows" if compared.telling == compared.rows else "of the rarer kind"
        text.append(f"only {compared.telling:,} {kind}: chance decides as much as the models")
    if fallen:
        text.append(f"{fallen}: look whether data and labels are what they were")
    if better and not promote:
        text.append(f"this one's {new.value:.4f} is not surely above {doubt}; by hand: {by_hand}")
        short += ", both by chance?"
    return Decision(promote, "; ".join(text), short, loud=few or bool(fallen), compared=compared)


def _is_simple(control: str) -> bool:
    return control not in CONTROLS or CONTROLS[control].gates


def controls_text(controls: Mapping[str, float]) -> str:
    """Say what controls are, and their values; the names may be a server's."""
    return ", ".join(f"{controls_named([name])} ({value:.4f})" for name, value in controls.items())


def controls_named(names: Iterable[str]) -> str:
    """Say what controls are."""
    return ", ".join(CONTROLS[name].what if name in CONTROLS else name for name in names)


def best_control(
    metric: str, higher: bool, value: float, controls: Mapping[str, float], *, is_link: bool
) -> tuple[str | None, list[str]]:
    """Return the best control that can serve in place of a model of this value, and better ones that cannot.

    `metric` is the gate's, and `higher` whether more of it is better; `controls`: see `controls_of`; `is_link`: pairs
    and edges have no control that serves but those of their ends' neighbours.
    """
    model = Candidate("", metric, value, higher)
    better = {name: bar for name, bar in controls.items() if not model.beats(bar) and bar != value}
    order = sorted(better, key=lambda name: -better[name] if higher else better[name])
    for number, name in enumerate(order):
        if name in CONTROLS and CONTROLS[name].serves and not (is_link and _is_simple(name)):
            return name, order[:number]
    return None, order


TAG = "graphmill.champion_history"
_MAX_CHARACTERS = 4500  # MLflow's column holds 5,000: about 50 moves

MoveReason = Literal["gate", "promote", "rollback"]


@dataclass(frozen=True)
class Move:
    """The alias came to a version. One that was moved by other means (MLflow's pages) is believed, and is no `Move`."""

    version: str
    before: str | None
    """The version that it was taken from; None: there was no champion."""
    how: MoveReason
    """By the gate of a training, by hand, or taken back."""
    at: str
    """ISO 8601, UTC."""


def read_history(text: str | None) -> list[Move]:
    """Read the tag, oldest move first; what cannot be read is no history."""
    try:
        return [Move(**entry) for entry in json.loads(text or "[]")]
    except (TypeError, ValueError, RecursionError):
        return []


def with_move(history: Sequence[Move], version: str, before: str | None, how: MoveReason) -> str:
    """Return the tag with another move; the oldest ones go where it would get too long."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    moves = [asdict(move) for move in (*history, Move(version, before, how, now))]
    while len(text := json.dumps(moves, separators=(",", ":"))) > _MAX_CHARACTERS:
        del moves[0]
    return text


def happened(history: Sequence[Move], champion: str | None) -> list[Move]:
    """Return the moves without the last ones that never happened: one is written down before the alias is moved."""
    moves = list(history)
    while moves and moves[-1].version != champion and moves[-1].before == champion:
        moves.pop()
    return moves


def champion_before(history: Sequence[Move], champion: str) -> str | None:
    """Return the version that was champion before the present one; None where that is not known."""
    moves = happened(history, champion)
    if not moves:
        return None
    return moves[-1].before if moves[-1].version == champion else moves[-1].version
