"""E-mail as a notification block of Prefect, beside those that it ships (Slack, webhooks, ...).

The server that sends must know the class: `flows.web.prefect_server` imports this module.
"""

from __future__ import annotations

from prefect.blocks.notifications import AppriseNotificationBlock
from pydantic import Field, SecretStr


class Email(AppriseNotificationBlock):
    """Sends e-mail over SMTP."""

    _block_type_name = "Graphmill e-mail"
    _block_type_slug = "graphmill-email"

    url: SecretStr = Field(
        title="SMTP address",
        description="mailtos://USER:PASSWORD@HOST:PORT?from=A@B.C&to=D@E.F, in Apprise's way of writing.",
    )
