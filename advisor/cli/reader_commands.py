"""How the readers of a letter run skuwise: what this run read, in options that work from any folder."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable
from pathlib import Path

from ...rules.base.own_command import own_command
from ..notify.settings import ReportSettings
from ..show.reader_commands import ReaderCommands


def reader_commands(options: argparse.Namespace, settings: ReportSettings, host: str) -> ReaderCommands:
    """The commands of a run's letters, from its options once the settings stand in them. `host`: this machine, which is
    named where databases are read: a reader may sit at another one."""
    source = _flags("--db", _absolute(options.db)) if options.db else _flags("--prometheus", (options.prometheus,))
    named = settings.command_host or (host if options.db and not settings.command else "")
    return ReaderCommands(
        program=settings.command or own_command(anywhere=True),
        source=_joined(source, *(_flags("--match", options.match)), *_files("--jobs", options.jobs)),
        book=_joined(
            *_files("--rules", options.rules), *_files("--prices", options.prices),
            *_flags("--gpu-hour-usd", options.gpu_hour_usd),
        ),
        state=_joined(*_files("--state", options.state)),
        host=named,
    )  # fmt: skip


def _absolute(paths: Iterable[Path]) -> list[str]:
    return [str(path.absolute()) for path in paths]


def _files(flag: str, path: Path | None) -> list[str]:
    return [] if path is None else _flags(flag, _absolute([path]))


def _flags(flag: str, values: Iterable[str]) -> list[str]:
    return [f"{flag} {shlex.quote(str(value))}" for value in values]


def _joined(*parts: str | list[str]) -> str:
    return " ".join(part for each in parts for part in ([each] if isinstance(each, str) else each))
