"""Channels: a notification block and the automations that use it, made and removed together."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from configs.errors import RecipeError
from configs.matching import did_you_mean
from flows.notifications.events import CHAMPION, KEPT, RECOVERED
from flows.services.bootstrap import RUN_TAG

Occasion = Literal["failure", "recovery", "champion", "kept"]
OCCASIONS: tuple[Occasion, ...] = ("failure", "recovery", "champion", "kept")
USUAL: tuple[Occasion, ...] = ("failure", "recovery", "champion")
"""Of a channel that names none: that a new model is no better is no news on most nights."""
_EVENTS = {
    "recovery": (RECOVERED, "well again"),
    "champion": (CHAMPION, "new champion"),
    "kept": (KEPT, "the champion stays"),
}
Kind = Literal["webhook", "slack", "email"]
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_BLOCK = "graphmill-notify-"
_AUTOMATION = "graphmill notify "


@dataclass(frozen=True)
class Channel:
    """Where messages go: an address of some kind, and the occasions for them."""

    name: str
    kind: Kind
    url: str
    occasions: tuple[Occasion, ...] = USUAL


def add(channel: Channel) -> None:
    """Make the channel, or renew it. Raises RecipeError for a name or an address that is none."""
    if not _NAME.fullmatch(channel.name):
        raise RecipeError(f"channel {channel.name!r}: small letters, digits and '-', at most 40")
    check_url(channel.kind, channel.url)
    block_id = _make_block(channel).save(_BLOCK + channel.name, overwrite=True, _sync=True)
    _remove_automations(channel.name)
    for occasion in channel.occasions:
        automation: Any = _automation(channel.name, occasion, block_id)
        automation.create(_sync=True)


def check_url(kind: Kind, url: str) -> None:
    """Raise RecipeError unless the address fits the kind."""
    try:
        scheme, place = urlsplit(url)[:2]
    except ValueError:
        scheme = place = ""
    schemes = ("mailto", "mailtos") if kind == "email" else ("http", "https")
    if scheme not in schemes or not place:
        example = "mailtos://USER:PASSWORD@HOST?to=ME@EXAMPLE.ORG" if kind == "email" else "https://HOST/..."
        raise RecipeError(f"--{kind} {url!r} is not such an address; write {example}")


def _make_block(channel: Channel) -> Any:
    from prefect.blocks.notifications import CustomWebhookNotificationBlock, SlackWebhook
    from pydantic import SecretStr

    if channel.kind == "slack":
        return SlackWebhook(url=SecretStr(channel.url))
    if channel.kind == "email":
        from flows.web.email_block import Email

        return Email(url=SecretStr(channel.url))
    body = {"title": "{{subject}}", "text": "{{body}}"}
    return CustomWebhookNotificationBlock(name=channel.name, url=channel.url, json_data=body)


def _automation(name: str, occasion: Occasion, block_id: Any) -> Any:
    from prefect.automations import Automation, EventTrigger
    from prefect.events.actions import SendNotification
    from prefect.events.schemas.automations import Posture

    if occasion == "failure":
        trigger = EventTrigger(
            expect={"prefect.flow-run.Failed", "prefect.flow-run.Crashed"},
            match_related={"prefect.resource.id": f"prefect.tag.{RUN_TAG}", "prefect.resource.role": "tag"},
            posture=Posture.Reactive,
            threshold=1,
        )
        subject = "{{ flow_run.name }} {{ flow_run.state.name }}"
        body = "{{ flow_run.state.message }}\n{{ flow_run|ui_url }}"
    else:
        event, words = _EVENTS[occasion]
        trigger = EventTrigger(expect={event}, posture=Posture.Reactive, threshold=1)
        subject = "{{ event.resource.name }}: " + words
        body = "{{ event.payload.text }}"
    return Automation(
        name=f"{_AUTOMATION}{name}: {occasion}",
        trigger=trigger,
        actions=[SendNotification(block_document_id=block_id, subject=subject, body=body)],
    )


def _documents(client: Any) -> dict[str, Any]:
    documents = client.read_block_documents(limit=200)
    by_name = {d.name.removeprefix(_BLOCK): d for d in documents if d.name and d.name.startswith(_BLOCK)}
    return dict(sorted(by_name.items()))


def listed(client: Any) -> list[tuple[str, str, str]]:
    """Return (name, kind, occasions) of each channel."""
    automations = {automation.name for automation in client.read_automations()}
    return [
        (name, document.block_type.name, ", ".join(o for o in OCCASIONS if f"{_AUTOMATION}{name}: {o}" in automations))
        for name, document in _documents(client).items()
    ]


def _find(client: Any, name: str) -> Any:
    by_name = _documents(client)
    if name not in by_name:
        raise RecipeError(f"no channel {name!r}{did_you_mean(name, by_name)}; channels: {', '.join(by_name) or 'none'}")
    return by_name[name]


def remove(client: Any, name: str) -> None:
    """Remove a channel and its automations. Raises RecipeError."""
    document = _find(client, name)
    _remove_automations(name)
    client.delete_block_document(document.id)


def _remove_automations(name: str) -> None:
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        for automation in client.read_automations():
            if automation.name.startswith(f"{_AUTOMATION}{name}: "):
                client.delete_automation(automation.id)


def send_test(client: Any, name: str) -> None:
    """Send a message from here. Raises RecipeError for an unknown channel, StageError where it does not arrive."""
    from prefect.blocks.abstract import NotificationBlock
    from prefect.blocks.core import Block

    from configs.errors import StageError
    from flows.web import email_block

    assert email_block  # its class must be known before the block is loaded
    document = _find(client, name)
    loader: Any = Block
    block: NotificationBlock = loader.load(f"{document.block_type.slug}/{document.name}", _sync=True)
    sender: Any = block
    try:
        with block.raise_on_failure():
            sender.notify(subject="graphmill", body="This is a test: notifications arrive here.", _sync=True)
    except Exception as error:
        raise StageError(f"channel {name} did not take the message: {' '.join(str(error).split())[:300]}") from error
