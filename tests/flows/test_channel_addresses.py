"""Addresses that channels take."""

from __future__ import annotations

import pytest

from configs.errors import RecipeError
from flows.notifications.channels import Kind, check_url


@pytest.mark.parametrize("kind", ["webhook", "slack", "email"])
@pytest.mark.parametrize("url", ["http://[x", "mailtos://[x", "", "http://", "ftp://host/x"])
def test_what_is_no_address_is_refused(kind: Kind, url: str) -> None:
    with pytest.raises(RecipeError, match=f"--{kind} .* is not such an address; write"):
        check_url(kind, url)
