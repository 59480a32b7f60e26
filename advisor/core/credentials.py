"""Secrets are read from files, never from settings. A name without a slash is a systemd credential: a file of
``$CREDENTIALS_DIRECTORY``."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from ...rules.base.errors import UsageError
from ...rules.base.files import open_stream

MAX_SECRET_BYTES = 65536


def secret(name: str, environ: Mapping[str, str], *, private: bool = False) -> str:
    """The content of a file of secrets, without the blanks around it. Raises UsageError; the content is never told.

    `private`: a file that others than its owner may read is refused. systemd guards its credentials itself.
    """
    path = Path(name)
    if "/" not in name:
        folder = environ.get("CREDENTIALS_DIRECTORY")
        if not folder:
            raise UsageError(
                f"No systemd credentials are available to this process, but {name} is one.",
                "Use a path, or set LoadCredential= in the unit.",
            )
        path, private = Path(folder) / name, False
    try:
        with open_stream(path) as file:
            if private and stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
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
