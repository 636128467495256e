"""Prefect's pages in a real browser: a run is started from the form with another option."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flows.records.parameters import requested_overrides
from tests.browser import needs_chromium, open_page
from tests.operations.conftest import Installation
from tests.operations.test_deployments import deploy, deployment_id

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), needs_chromium]


@pytest.fixture
def page() -> Iterator[Page]:
    with open_page() as opened:
        yield opened


def test_a_run_is_started_from_the_form_with_an_override(
    installation: Installation, page: Page, tmp_path: Path
) -> None:
    deploy(installation, "browser")
    page.goto(f"{installation.prefect}/deployments/deployment/{deployment_id(installation, 'browser')}/run")
    # The field below the option's name, inside of the section "train".
    field = page.locator("div.schema-form-property", has=page.get_by_text("epochs (Optional)", exact=True)).last
    field.locator("input").fill("4")
    page.screenshot(path=tmp_path / "form.png", full_page=True)
    page.get_by_role("button", name="Submit").click()
    mine = {"deployments": {"name": {"any_": ["browser"]}}}
    (run,) = installation.wait(lambda: installation.api("flow_runs/filter", mine))
    run_id = run["id"]
    # Boxes that nobody touched change nothing.
    now = datetime.datetime.now(datetime.UTC)
    assert requested_overrides(None, run["parameters"]["options"], None, now) == ["train.epochs=4"]
    installation.wait(lambda: installation.api(f"flow_runs/{run_id}")["state_type"] == "COMPLETED")
    page.goto(f"{installation.prefect}/runs/flow-run/{run_id}")
    page.get_by_text("Completed").first.wait_for()
    page.get_by_role("tab", name="Artifacts").or_(page.get_by_text("Artifacts", exact=True)).first.click()
    page.get_by_text("result").first.wait_for()
    page.screenshot(path=tmp_path / "run.png", full_page=True)
