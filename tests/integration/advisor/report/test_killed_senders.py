"""Senders that are killed at random moments, by clocks that are a day wrong: each mail arrives, and at most twice.

A hundred kills: ``SKUWISE_KILLS=100 pytest -s tests/integration/advisor/report/test_killed_senders.py``.
"""

import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from skuwise.advisor.state.deliveries import KILLED
from skuwise.tests.support.mail_server import MailServer, mail_server
from skuwise.tests.support.outbox_builders import DAY, Post

KILLS = int(os.environ.get("SKUWISE_KILLS", "4"))
RECIPIENTS = 40


def sender(post: Post, server: MailServer, offset_seconds: float) -> "subprocess.Popen[bytes]":
    """A process that is about to send."""
    words = [str(post.state.path), str(server.port), str(server.ca_file), str(offset_seconds)]
    process = subprocess.Popen(
        [sys.executable, "-m", "skuwise.tests.support.killed_sender", *words], stdout=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdout.readline() == b"begins\n"
    return process


def test_killed_senders_lose_nothing_and_send_nothing_a_third_time(tmp_path: Path) -> None:
    chance, post, batches, killed, longest_seconds = random.Random(7), Post(tmp_path), 0, 0, 1.0
    with mail_server(tmp_path) as server:
        while killed < KILLS or post.waits():
            if not post.waits():
                batches += 1
                post.at = time.time()
                content = f"Subject: {batches}\r\n\r\nx".encode()
                post.queue(
                    "team", *(f"{n}@example.org" for n in range(RECIPIENTS)), batch=f"{batches}", content=content
                )
            with sender(post, server, chance.choice((0.0, DAY, -DAY))) as process:
                began = time.monotonic()
                try:
                    process.wait(None if killed == KILLS else chance.uniform(0.0, 0.9 * longest_seconds))
                    longest_seconds = time.monotonic() - began
                except subprocess.TimeoutExpired:
                    process.kill()
                    killed += 1
    arrived = Counter((str(one.message["Subject"]), one.to[0]) for one in server.received)
    ended = post.rows("batch, recipient, state, unsure, reply")
    sys.stderr.write(f"{killed} kills; {Counter(row[2:4] for row in ended)}; arrived {Counter(arrived.values())}\n")
    assert len(ended) == batches * RECIPIENTS
    for batch, recipient, state, unsure, reply in ended:
        count = arrived[str(batch), str(recipient)]
        assert count <= 1 + int(str(unsure)) and count <= 2
        # What was in hand at two kills is told to have failed.
        assert (state == "sent" and count >= 1) or (state, unsure, reply) == ("failed", 2, KILLED)
