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
    parser.add_argument("--config", metavar="FILE", help="settings from this file, in place of the usual ones")


def add_trees(parser: argparse.ArgumentParser) -> None:
    """What is read, for commands that sample."""
    add_config(parser)
    parser.add_argument("--path.sysfs", dest="path_sysfs", metavar="DIR", help="read this tree in place of /sys")
    parser.add_argument("--path.procfs", dest="path_procfs", metavar="DIR", help="read this tree in place of /proc")


def add_running_agent(parser: argparse.ArgumentParser) -> None:
    """Which running agent is meant."""
    add_config(parser)
    parser.add_argument("--db", metavar="PATH", help="the database of the agent that is meant")
    parser.add_argument("--socket", metavar="PATH", help="the agent's socket, where it is not the usual one")


def settings_of(options: argparse.Namespace) -> AgentConfig:
    """The settings files and variables, with what the command line says over them."""
    return load_config({name: getattr(options, name, None) for name in _SETTINGS}, os.environ)
