"""The mails and the page in a real browser: Debian's Chromium, headless, without a network."""

import html
import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

from skuwise.advisor.core.advice_types import Configuration
from skuwise.advisor.notify.letters import incident_letter, report_letter
from skuwise.advisor.notify.report import split_by_team
from skuwise.advisor.show.incident_words import Item
from skuwise.advisor.show.pages.story import story_of
from skuwise.advisor.watch.settings import WatchSettings
from skuwise.tests.support.incident_builders import MORNING, incident
from skuwise.tests.support.ledger_builders import moved
from skuwise.tests.support.prometheus_engines import needed
from skuwise.tests.support.report_fixtures import END, WEEK, by_namespace, fleet

WIDTHS = (360, 500, 700)  # CSS px: a phone, a narrow pane, a desk
# `broken`: figures, dates, ids and units that stand on two lines; not those of commands and of names that are markup.
LOOK = """
<script>
window.onload = () => {
  const found = {};
  for (const frame of document.querySelectorAll('iframe')) {
    const doc = frame.contentDocument, root = doc.documentElement, broken = [];
    const style = (selector) => frame.contentWindow.getComputedStyle(doc.querySelector(selector));
    const texts = doc.createTreeWalker(doc.body, NodeFilter.SHOW_TEXT);
    for (let node = texts.nextNode(); node; node = texts.nextNode()) {
      if (node.parentElement.closest('code, .preheader')) continue;
      for (const word of node.data.matchAll(/(?<![^\\s(])([+-]?[$]?\\d|[a-z]-[0-9a-f]{8}|GPU-hours)[^\\s()]*/g)) {
        if (word[0].length > 24 || /[<>'=]/.test(word[0])) continue;
        const range = doc.createRange();
        range.setStart(node, word.index);
        range.setEnd(node, word.index + word[0].length);
        const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
        if (lines.size > 1) broken.push(word[0]);
      }
    }
    found[frame.id] = {
      width: root.clientWidth, reaches: root.scrollWidth, text: doc.body.innerText, broken,
      spills: [...doc.querySelectorAll('.value')].filter((one) => one.scrollWidth > one.clientWidth).length,
      pictures: [...doc.images].map((image) => image.naturalWidth),
      fetched: frame.contentWindow.performance.getEntriesByType('resource').map((entry) => entry.name),
      scripts: doc.scripts.length, ground: style('body').backgroundColor, ink: style('h1').color,
    };
  }
  found.hit = window.hit === undefined;
  document.body.textContent = JSON.stringify(found);
};
</script>
"""


def name(plain: str) -> str:
    return f"{plain}<img src=x onerror='top.hit=1'><script>top.hit=1</script>"


def pages() -> dict[str, str]:
    """The mail of a week, its whole page, and mails of one incident and of several, with names that are markup."""
    now, before = fleet(12, 3, name=name), fleet(12, 3, end=END - WEEK, name=name)
    entry = moved(about=name("chat"), why=name("Seen."))
    long = replace(entry.recommendation, source=Configuration("x" * 70, "a", 8), target=Configuration(None, None, 0))
    entry = replace(entry, recommendation=long)
    mail = report_letter(story_of(now, before, (entry,), teams=split_by_team(now, by_namespace)))
    items = [Item(incident(n, name=name("train"), user=name("ann"), cost=1234.0 * n), "opened") for n in range(1, 4)]
    letter, several = (incident_letter(some, "", MORNING, WatchSettings()) for some in (items[:1], items))
    page = mail.attachments[0].data.decode()
    return {"mail": mail.html, "page": page, "incident": letter.html, "digest": several.html}


def look(folder: Path, scheme: str, documents: dict[str, str]) -> dict:
    """What a browser makes of the documents at each width, under a colour scheme."""
    frames = "".join(
        f'<iframe id="{which}-{width}" width="{width}" height="800" srcdoc="{html.escape(text)}"></iframe>'
        for which, text in documents.items()
        for width in WIDTHS
    )
    file = folder / f"{scheme}.html"
    file.write_text(f"<!DOCTYPE html><body>{frames}{LOOK}</body>")
    done = subprocess.run(
        [
            "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
            "--disable-sync", f"--user-data-dir={folder / f'profile-{scheme}'}",
            f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}", "--dump-dom", file.as_uri(),
        ],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    match = re.search(r"<body>(\{.*\})</body>", done.stdout, re.DOTALL)
    assert match is not None, done.stdout[-2000:] + done.stderr[-2000:]
    return json.loads(html.unescape(match[1]))


def lightness(color: str) -> float:
    return sum(map(int, re.findall(r"\d+", color)[:3])) / 765


def test_mails_and_page_read_at_three_widths_in_light_and_dark_and_fetch_nothing(tmp_path):
    needed("chromium")
    documents = pages()
    seen = {scheme: look(tmp_path, scheme, documents) for scheme in ("light", "dark")}
    for page in seen.values():
        assert page.pop("hit")
        for which, shown in page.items():
            assert shown["reaches"] <= shown["width"] and not shown["spills"], which
            assert "<img src=x onerror=" in shown["text"]  # as words
            assert shown["scripts"] == 0 and all(width > 0 for width in shown["pictures"])
            assert all(url.startswith("data:") for url in shown["fetched"]), shown["fetched"]
            assert which.startswith("page") or not shown["broken"], (which, shown["broken"])
    for which, light in seen["light"].items():
        dark = seen["dark"][which]
        assert lightness(light["ground"]) > 0.8 > 0.2 > lightness(light["ink"])
        assert lightness(dark["ground"]) < 0.2 < 0.8 < lightness(dark["ink"])
