"""Catalogs of Iceberg, opened so that only their configuration on this machine chooses code, endpoints and credentials.

Properties of a table, answers of a catalog's server and the paths in metadata and manifests are data: whoever may write
a table has written them. pyiceberg lets properties of a table win over the configuration, and imports the module that
`py-io-impl` names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, infer_catalog_type, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.utils.config import Config

from configs.errors import DataError
from tasks.readers.table_formats.addresses import check_address, scheme_of

_CODE = re.compile(r"^py-|(^|[.-])impl$")
_JAVA = frozenset({"io-impl", "metrics-reporter-impl", "write.location-provider.impl"})
"""Classes for Java, which nothing here reads."""
_ACCESS = re.compile(
    r"^(s3|s3tables|gcs|adls|hdfs|hf|oss|client|glue|dynamodb|rest\.|header|auth|ssl|uri|token|credential|oauth2)\b"
    r"|endpoint|secret|password|token|credential|access-key|signer|proxy"
)
_HARMLESS = re.compile(r"(s3|client)\.(region=[a-z0-9-]+|path-style-access=\w+)")
_S3 = (("s3.access-key-id", "s3.secret-access-key"), ("client.access-key-id", "client.secret-access-key"),
       ("s3.anonymous",))  # fmt: skip
_AZURE = (("adls.account-key",), ("adls.sas-token",), ("adls.client-id", "adls.client-secret", "adls.tenant-id"))
_CONFIGURED = {"s3": _S3, "s3a": _S3, "gs": (("gcs.oauth2.token",),), "abfs": _AZURE, "abfss": _AZURE}


def open_catalog(name: str, path: Path) -> Catalog:
    """Open a catalog of this machine's configuration; `path` is how messages call the table.

    Raises DataError: a property, of the configuration or of the server's answer, that graphmill does not follow. Raises
    ValueError: there is no such catalog.
    """
    _refuse_current_folder(path)
    conf: dict[str, Any] = dict(Config().get_catalog_config(name) or {})
    for option in conf:
        if _CODE.search(option) and option not in _JAVA:
            raise DataError(
                f"the configuration of the catalog {name} sets {option}, which names code; graphmill reads tables' "
                "files by code of its own only; leave it out",
                path=path,
            )
    kind = str(conf.get("type") or getattr(infer_catalog_type(name, conf), "value", "")).lower()
    if kind == "rest":
        conf.setdefault("header.X-Iceberg-Access-Delegation", "")  # asks for no credentials of the server
        catalog: Catalog = _Rest(name, path, conf)
    else:
        scheme, _, file = str(conf.get("uri", "")).partition(":///")
        # An SQLite file that is not there would be made by connecting.
        if scheme.partition("+")[0] == "sqlite" and file and not Path(file.partition("?")[0]).is_file():
            raise DataError(f"the database of the catalog {name}, {file}, is not there", path=path)
        catalog = load_catalog(name, init_catalog_tables="false")  # else a reader would make tables where none are
    catalog.properties = {**catalog.properties, "py-io-impl": f"{__name__}.{MetadataFiles.__name__}"}

    def load_file_io(properties: Mapping[str, Any] = {}, location: str | None = None) -> PyArrowFileIO:
        _check(properties, conf, path, "the table's own properties, or the catalog's answer, set")
        if not location or location.count("/") < 2:
            raise DataError(f"its catalog does not say where its metadata lies ({location})", path=path)
        folder = location.rpartition("/")[0].rpartition("/")[0]  # the metadata lie in `metadata/` below it
        return DataFiles({**catalog.properties, **properties}, folder, conf, path)

    catalog._load_file_io = load_file_io  # type: ignore[method-assign]
    return catalog


class _Rest(RestCatalog):
    """A catalog behind HTTP whose server changes nothing of what the configuration says."""

    def __init__(self, name: str, path: Path, conf: Mapping[str, Any]) -> None:
        self._path, self._conf = path, conf
        super().__init__(name, **conf)

    def _fetch_config(self) -> None:
        super()._fetch_config()
        _check(self.properties, self._conf, self._path, f"the server of the catalog {self.name} sets")


class MetadataFiles(PyArrowFileIO):
    """Opens the file that says what a table is, wherever its catalog says that it lies."""

    def new_input(self, location: str) -> PyArrowFile:
        """Open a file for reading. Raises DataError."""
        if scheme_of(location) not in ("file", *_CONFIGURED):
            raise DataError("a table's metadata is read from files of this machine or of a cloud", path=location)
        if scheme_of(location) != "file":
            check_address(location, Path(location), _CONFIGURED, self.properties)
        return super().new_input(location)


class DataFiles(PyArrowFileIO):
    """Opens files below a table's folder and below its catalog's warehouse, and no others."""

    def __init__(self, properties: Any, folder: str, conf: Mapping[str, Any], path: Path) -> None:
        super().__init__(properties)
        self._conf, self._path = conf, path
        places = [folder] + ([str(conf["warehouse"])] if "/" in str(conf.get("warehouse", "")) else [])
        self._folders = tuple(_plain(place, path).rstrip("/") + "/" for place in places)

    def new_input(self, location: str) -> PyArrowFile:
        """Open a file for reading. Raises DataError."""
        check_address(location, self._path, _CONFIGURED, self._conf)
        if not _plain(location, self._path).startswith(self._folders):
            raise DataError(
                f"its metadata names a file outside of its folder {self._folders[0]}: {location}; rewrite the table's "
                "files into it, or let the catalog's `warehouse` be a folder that holds both",
                path=self._path,
            )
        return super().new_input(location)


def _plain(location: str, path: Path) -> str:
    """Return an address without detours, so that what it begins with can be compared."""
    scheme, _, place = PyArrowFileIO.parse_location(location)
    if scheme == "file":
        return os.path.realpath(place)
    if ".." in place.split("/"):
        raise DataError(f"its metadata names a file by an address with `..`: {location}", path=path)
    return f"{scheme}://{place}"


def _check(properties: Mapping[str, Any], conf: Mapping[str, Any], path: Path, who: str) -> None:
    """Raise DataError for a property that the configuration does not have, and that only it may set."""
    for name, value in properties.items():
        if name in conf and str(conf[name]).rstrip("/") == str(value).rstrip("/"):
            continue
        is_code = bool(_CODE.search(name.lower())) and name not in _JAVA
        if is_code or (_ACCESS.search(name.lower()) and not _HARMLESS.fullmatch(f"{name}={value}")):
            what = "code that would run" if is_code else "whom to ask or with which credentials"
            way_out = "" if is_code else f"; if it is right, write {name} into the catalog's configuration yourself"
            why = f"{who} {name}, which chooses {what}; nothing in data may choose that: remove the property{way_out}"
            raise DataError(why, path=path)


def _refuse_current_folder(path: Path) -> None:
    """Raise DataError where pyiceberg would take its configuration from the folder where a command happens to run."""
    here = Path.cwd() / ".pyiceberg.yaml"
    folders = (os.environ.get("PYICEBERG_HOME"), os.path.expanduser("~"))  # noqa: PTH111 -- as pyiceberg does
    if here.is_file() and not any((Path(folder) / ".pyiceberg.yaml").is_file() for folder in folders if folder):
        raise DataError(
            f"pyiceberg's configuration in the current folder ({here}) is not read, for it may have "
            "come with the data; move it to ~, or name its folder by PYICEBERG_HOME",
            path=path,
        )
