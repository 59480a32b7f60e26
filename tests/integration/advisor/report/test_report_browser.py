# pyright: reportOptionalMemberAccess=false
"""The mail and the page in a real browser: Debian's Chromium, headless, without a network to speak of."""

import base64
import html
import json
import re
import subprocess
from pathlib import Path

from skuwise.advisor.notify.by_team import split_by_team
from skuwise.advisor.notify.report_letters import letter_of
from skuwise.advisor.render import render
from skuwise.advisor.views.document.report_content import story_of
from skuwise.tests.support.prometheus_engines import needed
from skuwise.tests.support.report_fixtures import END, WEEK, by_namespace, fleet, outcome

PHONE = 360  # CSS px
LOOK = """
<script>
window.onload = () => {
  const told = {};
  for (const frame of document.querySelectorAll('iframe')) {
    const doc = frame.contentDocument, root = doc.documentElement;
    const style = (selector) => frame.contentWindow.getComputedStyle(doc.querySelector(selector));
    told[frame.id] = {
      width: root.clientWidth, reaches: root.scrollWidth, text: doc.body.innerText,
      pictures: [...doc.images].map((image) => image.naturalWidth),
      fetched: frame.contentWindow.performance.getEntriesByType('resource').map((entry) => entry.name),
      scripts: doc.scripts.length, ground: style('body').backgroundColor, ink: style('h1').color,
      card: style('.card').backgroundColor,
    };
  }
  told.hit = window.hit === undefined;
  document.body.textContent = JSON.stringify(told);
};
</script>
"""


def name(plain: str) -> str:
    return f"{plain}<img src=x onerror='top.hit=1'><script>top.hit=1</script>"


def look(folder: Path, scheme: str) -> dict:
    """What a browser makes of the mail and of the page on a phone, under a colour scheme."""
    now, before = fleet(12, 3, name=name), fleet(12, 3, end=END - WEEK, name=name)
    told = outcome(about=name("chat"), from_config="8 x " + "x" * 70, to_config="-", why=name("Seen."))
    letter = letter_of(story_of(now, before, (told,), teams=split_by_team(now, by_namespace)))
    mail = letter.html
    for image in letter.images:
        mail = mail.replace(f"cid:{image.name}", f"data:image/png;base64,{base64.b64encode(image.png).decode()}")
    frames = "".join(
        f'<iframe id="{which}" width="{PHONE}" height="800" srcdoc="{html.escape(text)}"></iframe>'
        for which, text in (("mail", mail), ("page", render(now, "html")))
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
    found = re.search(r"<body>(\{.*\})</body>", done.stdout, re.DOTALL)
    assert found is not None, done.stdout[-2000:] + done.stderr[-2000:]
    return json.loads(html.unescape(found[1]))


def lightness(color: str) -> float:
    return sum(map(int, re.findall(r"\d+", color)[:3])) / 765


def test_mail_and_page_read_on_a_phone_in_light_and_dark_and_fetch_nothing(tmp_path):
    needed("chromium")
    seen = {scheme: look(tmp_path, scheme) for scheme in ("light", "dark")}
    for told in seen.values():
        assert told["hit"]
        for which in ("mail", "page"):
            shown = told[which]
            assert shown["reaches"] <= shown["width"], which
            assert shown["width"] <= PHONE and "Recommendations" in shown["text"]
            assert "<script>top.hit=1</script>" in shown["text"]  # as words
            assert shown["scripts"] == 0 and shown["pictures"] and all(width > 0 for width in shown["pictures"])
            assert all(url.startswith("data:") for url in shown["fetched"]), shown["fetched"]
    for which in ("mail", "page"):
        light, dark = seen["light"][which], seen["dark"][which]
        assert lightness(light["ground"]) > 0.8 > 0.2 > lightness(light["ink"])
        assert lightness(dark["ground"]) < 0.2 < 0.8 < lightness(dark["ink"])
        assert lightness(dark["card"]) < 0.3 < lightness(light["card"])
