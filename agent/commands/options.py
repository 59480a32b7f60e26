"""Options that several of the agent's commands share, and the settings that they and the files give together."""

from __future__ import annotations

import argparse
import os

from ..config import AgentConfig, load_config

# How long `once` and `doctor` watch: counters need two readings, and GPM samples must lie 100 ms apart.
LOOK_SECONDS = 0.5
_SETTINGS = ("config", "db", "interval", "socket", "duration", "listen", "path_sysfs", "path_procfs")


def add_config(parser: argparse.ArgumentParser) -> None:
    """Which settings are meant."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="settings file (default: /etc/skuwise/skuwise.toml and the one in ~/.config/skuwise)",
    )


def add_trees(parser: argparse.ArgumentParser) -> None:
    """What is read, for commands that sample."""
    add_config(parser)
    parser.add_argument("--path.sysfs", dest="path_sysfs", metavar="DIR", help="root of sysfs (default: /sys)")
    parser.add_argument("--path.procfs", dest="path_procfs", metavar="DIR", help="root of procfs (default: /proc)")


def add_running_agent(parser: argparse.ArgumentParser) -> None:
    """Which running agent is meant."""
    add_config(parser)
    parser.add_argument("--db", metavar="PATH", help="database of the agent (default: from the settings)")
    parser.add_argument("--socket", metavar="PATH", help="control socket of the agent (default: from the settings)")


def settings_of(options: argparse.Namespace) -> AgentConfig:
    """The settings files and variables, with what the command line says over them."""
    return load_config({name: getattr(options, name, None) for name in _SETTINGS}, os.environ)
