"""A sender in a process of its own, to be killed: ``python -m ... STATE PORT CA_FILE CLOCK_OFFSET_SECONDS``."""

import sys
import time
from email.headerregistry import Address
from pathlib import Path

from skuwise.advisor.notify.sending import Clocks, send_due
from skuwise.advisor.notify.settings import ReportSettings
from skuwise.advisor.notify.smtp import SmtpCarrier
from skuwise.advisor.state.file import State
from skuwise.agent.model import Instant

from .mail_server import PASSWORD, USER


def main(path: str, port: str, ca_file: str, offset_seconds: str) -> None:
    """Send what is due once; a line is printed before that."""
    settings = ReportSettings(
        sender=Address("", addr_spec="gpus@example.org"), smtp_host="127.0.0.1", smtp_port=int(port),
        smtp_username=USER, smtp_ca_file=ca_file, smtp_timeout_seconds=30.0,
    )  # fmt: skip
    state = State(Path(path))
    clocks = Clocks(lambda: Instant(time.time() + float(offset_seconds), time.monotonic()), time.sleep)
    sys.stdout.write("begins\n")
    sys.stdout.flush()
    with state.alone("Another sender"):
        send_due(state, {"mail": SmtpCarrier(settings, PASSWORD)}, clocks, mails_per_minute=6000, say=lambda _: None)


if __name__ == "__main__":
    main(*sys.argv[1:])
