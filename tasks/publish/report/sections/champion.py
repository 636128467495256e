"""Champion and challenger: what the gate decided, and how their data differs."""

from __future__ import annotations

from tasks.publish import profile
from tasks.publish.gate.rules import controls_named
from tasks.publish.report.parts import ReportedRun, Section
from tasks.storage.controls import CONTROLS

ORDER = 10


def section(run: ReportedRun) -> Section | None:
    """Say what the gate decided, and by what; None where it decided nothing."""
    gate = run.publication.gate
    if gate is None:
        return None
    this, other = f"version {run.publication.model_version}", f"version {gate.against}"
    rows = [("decision", f"{this} is {'' if gate.promoted else 'not '}champion: {gate.reason}")]
    if gate.control:
        rows.insert(0, ("published", f"{controls_named([gate.control])}, a control, in place of the model"))
    if gate.champion is not None:
        rows += [
            (f"{this}, {gate.metric}", f"{gate.challenger:.4f}"),
            (f"{other}, {gate.metric}", f"{gate.champion:.4f}"),
            ("rows of both", f"{gate.rows:,} of the validation split of {gate.data}"),
        ]
    controls = gate.controls.items()  # one may be the model itself, where a control was published in its place
    rows += [(f"control {CONTROLS[name].row if name in CONTROLS else name}", f"{bar:.4f}") for name, bar in controls]
    if gate.against is not None:
        unknown = [("its data", f"what data {other} was trained on is not known")]
        rows += profile.facts(gate.drift) if gate.drift else unknown
    return Section("Champion and challenger", rows)
