"""The reference of the command line, read from the Typer app as `--help` reads it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import typer

from flows.cli import app

_COMMON = frozenset({"--help", "--install-completion", "--show-completion"})


class Command(NamedTuple):
    """A command, or a group of commands."""

    path: str
    """As it is typed: `graphmill backfill create`."""
    command: Any
    context: Any
    is_group: bool


def walk() -> Iterator[Command]:
    """Yield every command that `--help` lists, groups before what they hold."""
    yield from _walk(typer.main.get_command(app), "graphmill", None)


def _walk(command: Any, path: str, parent: Any) -> Iterator[Command]:
    context = command.context_class(command, info_name=path.rpartition(" ")[2], parent=parent)
    inner = getattr(command, "commands", None)
    yield Command(path, command, context, inner is not None)
    for name, each in (inner or {}).items():
        if not each.hidden:
            yield from _walk(each, f"{path} {name}", context)


def commands_page() -> str:
    """Return the page of all commands."""
    found = list(walk())
    parts = [
        "# Commands",
        "Exit code 0 is success, 2 a mistake in what was given, 130 Ctrl-C, 1 everything else. `--json` prints one "
        "JSON object as the last line of stdout; logs and progress go to stderr.",
        "| command | what it does |\n|---|---|\n"
        + "\n".join(f"| [`{c.path}`](#{_anchor(c.path)}) | {_first(c)} |" for c in found if not c.is_group),
    ]
    return "\n\n".join([*parts, *(section(each) for each in found)]) + "\n"


def section(each: Command) -> str:
    """Return one command: usage, what it does, arguments and options."""
    level = "##" if each.path.count(" ") < 2 else "###"
    parts = [f"{level} {each.path} {{ #{_anchor(each.path)} }}"]
    if not each.is_group:
        parts.append(f"```text\n{_usage(each)}\n```")
    parts.append(_help(each))
    rows = [row for p in each.command.get_params(each.context) if (row := _row(p, each.context))]
    if rows:
        parts.append("| | |\n|---|---|\n" + "\n".join(rows))
    return "\n\n".join(parts)


def _usage(each: Command) -> str:
    arguments = [p for p in each.command.get_params(each.context) if p.param_type_name == "argument"]
    return " ".join([each.path, "[OPTIONS]", *map(_argument, arguments)])


def _argument(parameter: Any) -> str:
    name = str(parameter.metavar or parameter.name.upper())
    return (name if parameter.required else f"[{name}]") + ("..." if parameter.nargs < 0 else "")


def _row(parameter: Any, context: Any) -> str:
    """Return an argument or option as a row; empty for those that every command has."""
    record = parameter.get_help_record(context)
    if record is None or _COMMON & set(parameter.opts):
        return ""
    name, text = record
    if parameter.param_type_name == "argument":
        name, text = _argument(parameter), text.replace("[required]", "").strip()
    return f"| `{_cell(name)}` | {_cell(_escape(text))} |"


def _escape(text: str) -> str:
    """Keep what stands in square brackets from being read as a link."""
    return text.replace("[", "\\[")


def _help(each: Command) -> str:
    return "\n".join(line.strip() for line in str(each.command.help or "").strip().splitlines())


def _first(each: Command) -> str:
    return _cell(_help(each).partition("\n")[0])


def _anchor(path: str) -> str:
    return path.replace(" ", "-")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
