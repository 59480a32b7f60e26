"""Secrets, which are read from files and never from settings, and the hosts that may get them unencrypted.

A name without a slash is a systemd credential: a file of ``$CREDENTIALS_DIRECTORY``.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path

from ...rules.base.errors import UsageError
from ...rules.base.files import open_stream

MAX_SECRET_BYTES = 65536


def secret(name: str, environ: Mapping[str, str], *, private: bool = False) -> str:
    """The stripped content of a secret file. Raises UsageError, which never contains the secret.

    `private`: refuse a file that other users can read. systemd protects its credentials itself.
    """
    path = Path(name)
    if "/" not in name:
        folder = environ.get("CREDENTIALS_DIRECTORY")
        if not folder:
            message = f"No systemd credentials are available to this process, but {name} is one."
            raise UsageError(message, "Use a path, or set LoadCredential= in the unit.")
        path, private = Path(folder) / name, False
    try:
        with open_stream(path) as file:
            if private and os.fstat(file.fileno()).st_mode & 0o077:
                raise UsageError(f"The file {path} is readable by other users.", "Run chmod 0600 on it.")
            content = file.read(MAX_SECRET_BYTES + 1)
        text = content.decode("utf-8").strip()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", "Fix the setting or the file.") from error
    except UnicodeDecodeError:
        raise UsageError(f"The file {path} is not text.", "Write only the secret to the file.") from None
    if not text or len(content) > MAX_SECRET_BYTES or not text.isprintable():
        raise UsageError(f"The file {path} does not hold exactly one line.", "Write one line to the file: the secret.")
    return text


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by its name or number; no name is resolved."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"
