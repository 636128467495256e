"""What `graphmill up` was asked, kept in `services/` of the home so that a second `up` brings back the same."""

from __future__ import annotations

import ipaddress
import re
import secrets
import socket
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ValidationError

from configs.errors import RecipeError
from flows.terminal.options import parse_age
from tasks.storage.artifacts import write_atomic
from tasks.storage.home import Home

PREFECT_PORT = 4200
MLFLOW_PORT = 5000
EVERYWHERE = ("0.0.0.0", "::")
SERVICES = ("prefect", "mlflow", "worker", "recovery")
USER = "graphmill"
# SQLite lets one process write at a time: beyond a few runs in flight they wait for each other and then fail.
SQLITE_LIMIT = 4
FOR_EVER = 36_500 * 86400.0
_LEAST_KEPT_SECONDS = 86400.0


class ServiceSettings(BaseModel):
    """Addresses, database and limits of one installation's services."""

    host: str = "127.0.0.1"
    """Interface that both servers listen on."""
    public_names: tuple[str, ...] = ()
    """Host names that browsers and clients use besides the host itself, with a port where it is not the server's."""
    prefect_port: int = 0
    mlflow_port: int = 0
    database: str | None = None
    """SQLAlchemy URL of PostgreSQL; None: SQLite files under the home."""
    artifacts: str | None = None
    """Where MLflow's server keeps artifacts (`file:///...`, `s3://...`); None: under the home."""
    pool: str = "graphmill"
    """Prefect work pool of the worker."""
    limit: int = 2
    """Runs at a time."""
    keep_events: float = 7 * 86400.0
    """Seconds for which Prefect keeps events; 0: for ever."""
    keep_runs: float = 90 * 86400.0
    """Seconds for which Prefect keeps flow runs that have ended, with their logs and pages; 0: for ever."""
    named_ports: tuple[str, ...] = ()
    """`prefect`, `mlflow`, where the user named the port: others rely on it, so that it is not exchanged."""
    password: str | None = None
    """Of user `graphmill` on both servers; None on loopback."""
    former_password: str | None = None
    """The password before the servers went back to loopback: MLflow's users keep it."""
    mlflow_secret: str = ""
    """Signs MLflow's sessions and forms."""

    @property
    def reachable_host(self) -> str:
        """The host by which this machine itself reaches the servers."""
        if self.host in EVERYWHERE:
            return "127.0.0.1"
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def prefect_url(self) -> str:
        """Address of Prefect's pages."""
        return f"http://{self.reachable_host}:{self.prefect_port}"

    @property
    def prefect_pages(self) -> str:
        """Address of Prefect's pages for people, who may be elsewhere."""
        if not self.public_names:
            return self.prefect_url
        name = self.public_names[0]
        return f"http://{name}" if has_port(name) else f"http://{name}:{self.prefect_port}"

    @property
    def mlflow_url(self) -> str:
        """Address of MLflow's pages."""
        return f"http://{self.reachable_host}:{self.mlflow_port}"

    @property
    def names(self) -> tuple[str, ...]:
        """Names and addresses that a request's Host may carry."""
        local = ("localhost", "127.0.0.1", "[::1]")
        bound = () if self.host in EVERYWHERE else (self.reachable_host,)
        return tuple(dict.fromkeys((*local, *bound, *self.public_names)))

    @property
    def prefect_database(self) -> str | None:
        """URL that Prefect takes (asyncpg), or None for SQLite."""
        return _with_driver(self.database, "postgresql+asyncpg")

    @property
    def mlflow_database(self) -> str | None:
        """URL that MLflow takes: the same database, its own schema (both keep their version in `alembic_version`)."""
        url = _with_driver(self.database, "postgresql+psycopg")
        if url is None:
            return None
        return f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3Dmlflow"


_NOT_IN_POOLS = "/%&><"
_NAME = re.compile(r"(\[[0-9a-f:]+\]|[a-z0-9]([a-z0-9._-]*[a-z0-9])?)(:[0-9]{1,5})?")


def checked_names(names: Iterable[str], option: str) -> tuple[str, ...]:
    """Return host names in lower case, each once. Raises RecipeError for what is no `NAME` or `NAME:PORT`."""
    unique = tuple(dict.fromkeys(name.strip().lower() for name in names))
    wrong = [name for name in unique if not _NAME.fullmatch(name)]
    if wrong:
        raise RecipeError(f"{option} {wrong[0]!r}: a host name or address is wanted, with :PORT where it differs")
    return unique


def kept_seconds(text: str, option: str) -> float:
    """Return `90d` in seconds, `forever` as 0. Raises RecipeError."""
    if text.strip() == "forever":
        return 0.0
    seconds = parse_age(text, option)
    if not _LEAST_KEPT_SECONDS <= seconds <= FOR_EVER:
        raise RecipeError(f"{option} {text}: give at least a day, such as 7d or 90d, or forever")
    return seconds


def has_port(name: str) -> bool:
    """Whether a public name is `NAME:PORT`."""
    return ":" in name.rpartition("]")[2]


def _with_driver(url: str | None, driver: str) -> str | None:
    return None if url is None else f"{driver}://{url.partition('://')[2]}"


def folder(home: Home) -> Path:
    """Return the services' folder (logs, state, settings), made with mode 0700: it holds passwords."""
    path = home.root / "services"
    path.mkdir(exist_ok=True, mode=0o700)
    return path


def log_path(home: Home, service: str) -> Path:
    """Return a service's log."""
    path = folder(home) / "logs"
    path.mkdir(exist_ok=True, mode=0o700)
    return path / f"{service}.log"


def settings_path(home: Home) -> Path:
    """Return the file of settings, for its owner's eyes only."""
    return folder(home) / "settings.json"


def read_settings(home: Home) -> ServiceSettings | None:
    """Return what the last `up` was asked, or None. Raises RecipeError for a damaged file."""
    path = settings_path(home)
    try:
        return ServiceSettings.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise RecipeError(
            f"{path} is damaged ({error.errors()[0]['msg']}); remove it and run graphmill up again"
        ) from error


def write_settings(home: Home, settings: ServiceSettings) -> None:
    """Keep the settings, whole or not at all, mode 0600."""
    write_atomic(settings_path(home), settings.model_dump_json(indent=1).encode(), mode=0o600)


def resolve(given: ServiceSettings) -> ServiceSettings:
    """Choose ports and credentials where they are still open.

    Port 0 is "choose"; a port of `named_ports` is that one or none. Raises RecipeError: a port is taken, the host is no
    address of this machine, the pool cannot be called so, the database is not PostgreSQL.
    """
    _check_database(given.database)
    if not given.host.strip():  # a socket would take it for every interface, without a password
        raise RecipeError("--host is empty; name an address of this machine, such as 127.0.0.1")
    if not given.pool.strip() or set(given.pool) & set(_NOT_IN_POOLS) or not given.pool.isprintable():
        raise RecipeError(
            f"--pool {given.pool!r}: a name without any of {' '.join(_NOT_IN_POOLS)}, as Prefect wants it"
        )
    if given.database is None and given.limit > SQLITE_LIMIT:
        raise RecipeError(
            f"--limit {given.limit} is more than SQLite can handle ({SQLITE_LIMIT} runs at a time); "
            "name a PostgreSQL database with --database postgresql+asyncpg://USER:PASSWORD@HOST/NAME"
        )
    prefect_port = _choose_port(given, "prefect", given.prefect_port or PREFECT_PORT)
    mlflow_port = _choose_port(given, "mlflow", given.mlflow_port or MLFLOW_PORT, besides=prefect_port)
    changes: dict[str, object] = {"prefect_port": prefect_port, "mlflow_port": mlflow_port}
    if is_loopback(given.host):
        changes |= {"password": None, "former_password": given.password or given.former_password, "mlflow_secret": ""}
    else:
        # MLflow wants twelve characters at least.
        changes |= {
            "password": given.password or given.former_password or secrets.token_urlsafe(18),
            "mlflow_secret": given.mlflow_secret or secrets.token_hex(32),
        }
    return given.model_copy(update=changes)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_database(url: str | None) -> None:
    if url is None:
        return
    scheme = url.partition("://")[0]
    if scheme.partition("+")[0] not in ("postgresql", "postgres"):
        raise RecipeError(
            f"--database {scheme}://...: only PostgreSQL can be named (postgresql+asyncpg://USER:PASSWORD@HOST/NAME); "
            "leave the option out for SQLite"
        )
    # urlsplit trips over what a password may hold, and tells it.
    place = url.partition("://")[2].rpartition("@")[2].partition("?")[0]
    if not place.partition("/")[2]:
        raise RecipeError("--database names no database: postgresql+asyncpg://USER:PASSWORD@HOST/NAME")


def _choose_port(given: ServiceSettings, service: str, port: int, besides: int = 0) -> int:
    """Return the port if it is free, else another one; a port that the user named is not replaced."""
    host = given.host
    for candidate in (port, 0):
        if candidate and candidate == besides:
            continue
        try:
            with socket.create_server(
                (host, candidate), family=socket.AF_INET6 if ":" in host else socket.AF_INET
            ) as listener:
                free_port: int = listener.getsockname()[1]
                return free_port
        except OSError as error:
            if error.errno not in (13, 98):  # neither forbidden nor taken: the host is at fault
                raise RecipeError(
                    f"--host {host}: {error.strerror or error}; use an address of this machine"
                ) from error
            if service in given.named_ports:
                raise RecipeError(
                    f"--{service}-port {port} on {host}: {error.strerror}; name another one, or 0 for any that is free"
                ) from error
    raise AssertionError("port 0 is always free")


_WAIT_SECONDS = 10
_BARE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


def check_database(settings: ServiceSettings) -> None:
    """Make MLflow's schema if there is none. Raises RecipeError where the database cannot be used, and says why."""
    import psycopg

    assert settings.database is not None
    url = f"postgresql://{settings.database.partition('://')[2]}"
    place = database_place(url)
    try:
        with psycopg.connect(url, connect_timeout=_WAIT_SECONDS, autocommit=True) as connection:
            # Two that do this at once get in each other's way, IF NOT EXISTS or not; the lock goes with the connection.
            connection.execute("SELECT pg_advisory_lock(hashtext('graphmill'))")
            encoding = connection.info.parameter_status("server_encoding")
            connection.execute("CREATE SCHEMA IF NOT EXISTS mlflow")
            # Prefect's migrations index texts by trigrams.
            connection.execute("CREATE EXTENSION IF NOT EXISTS pg_trgm")
    except psycopg.Error as error:
        reason, password = str(error).strip().splitlines()[-1], urlsplit(url).password or ""
        for secret in filter(None, (password, unquote(password))):
            reason = reason.replace(secret, "***")
        raise RecipeError(f"--database: PostgreSQL at {place} cannot be used: {reason}") from None
    if encoding != "UTF8":
        raise RecipeError(
            f"--database: {place} keeps texts as {encoding}, and MLflow's need UTF8; make one that does: "
            "createdb --encoding=UTF8 --template=template0 NAME"
        )


def database_place(url: str) -> str:
    """Return host, port and database of an address. Raises RecipeError, without the password, where it cannot be read.

    A password with / ? # or @ as it is ends its part of the address too early, and libpq prints what it cannot decode.
    """
    credentials, _, rest = url.partition("://")[2].rpartition("@")
    try:
        parts = urlsplit(url)
        place = f"{parts.hostname}:{parts.port or 5432}{parts.path}"
        clear = "@" not in credentials + parts.path + parts.query + parts.fragment
    except ValueError:
        place, clear = "", False
    if not clear or _BARE_PERCENT.search(credentials):
        raise RecipeError(
            f"--database: the address of {rest.partition('?')[0]} cannot be read; percent-encode the characters "
            "/ ? # @ : [ ] % of its user and password (%2F for /, %25 for %), and look whether the port is a number"
        )
    return place
