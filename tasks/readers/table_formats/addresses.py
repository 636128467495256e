"""Tables beyond this machine: which addresses are read, and that nobody asks this machine for its own credentials.

In a cloud, a service at 169.254.169.254 (or `metadata.google.internal`) gives any program the credentials of the
machine, and the libraries of all clouds ask it where they are given none. A recipe names an address, so whoever wrote
the recipe would read with the machine's rights; only the machine's operator lets them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from configs.errors import DataError

MACHINE_CREDENTIALS = "GRAPHMILL_MACHINE_CREDENTIALS"
"""Environment variable; 1: libraries may ask the machine for its credentials."""

_AWS = (
    ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), ("AWS_PROFILE",), ("AWS_SHARED_CREDENTIALS_FILE",),
    ("AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE"), ("AWS_SKIP_SIGNATURE",),
)  # fmt: skip
_GOOGLE = (
    ("GOOGLE_APPLICATION_CREDENTIALS",), ("GOOGLE_SERVICE_ACCOUNT",), ("GOOGLE_SERVICE_ACCOUNT_PATH",),
    ("GOOGLE_SERVICE_ACCOUNT_KEY",), ("GOOGLE_SKIP_SIGNATURE",),
)  # fmt: skip
_AZURE = (
    ("AZURE_STORAGE_ACCOUNT_KEY",), ("AZURE_STORAGE_SAS_TOKEN",), ("AZURE_STORAGE_SAS_KEY",),
    ("AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID"),
    ("AZURE_CLIENT_ID", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_TENANT_ID"), ("AZURE_SKIP_SIGNATURE",),
)  # fmt: skip
ENVIRONMENT = {"s3": _AWS, "s3a": _AWS, "gs": _GOOGLE, "abfs": _AZURE, "abfss": _AZURE, "az": _AZURE}
"""By scheme: variables that give credentials, those of one group together (deltalake 1.6)."""
_FILES = {
    "s3": "~/.aws/credentials",
    "s3a": "~/.aws/credentials",
    "gs": "~/.config/gcloud/application_default_credentials.json",
}


def scheme_of(address: str) -> str:
    """Return what stands before `:`, in small letters; of a path `file`."""
    scheme, colon, _ = address.partition(":")
    return scheme.lower() if colon and "/" not in scheme else "file"


def check_address(
    address: str, path: Path, groups: Mapping[str, tuple[tuple[str, ...], ...]], given: Mapping[str, object]
) -> None:
    """Raise DataError for an address that is not read, or only with credentials that nobody gave.

    `address`: such as `s3://bucket/orders`; a path is always read. `path`: how messages call the table. `groups`: by
    scheme, the names of which `given` (the environment, or a catalog's configuration) must have all of one group.
    """
    scheme = scheme_of(address)
    if scheme == "file":
        return
    if scheme not in groups:
        why = f"{address}: tables are read from folders of this machine and from {', '.join(groups)}; copy it to one"
        raise DataError(why, path=path)
    if os.environ.get(MACHINE_CREDENTIALS) == "1":
        return
    in_file = given is os.environ and scheme in _FILES and os.path.isfile(os.path.expanduser(_FILES[scheme]))  # noqa: PTH111, PTH113 -- no error without a home
    if not in_file and not any(all(given.get(name) for name in group) for group in groups[scheme]):
        ways = ", or ".join(" with ".join(group) for group in groups[scheme])
        where = "in the environment" if given is os.environ else "in the catalog's configuration"
        raise DataError(
            f"{address} needs credentials, and this machine is not asked for its own; give {where} {ways}; or, if this "
            f"machine's operator lets every recipe read with the machine's own rights, {MACHINE_CREDENTIALS}=1",
            path=path,
        )
    if scheme in ("s3", "s3a"):
        # Even with keys the service is asked, for the region; no option says this to the libraries, only a variable.
        os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
        if not os.environ.get("AWS_ACCESS_KEY_ID"):
            for name in ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"):
                os.environ.pop(name, None)  # where a container would be given those of its machine
