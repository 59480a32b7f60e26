"""Offers of gpuhunt's catalog, recorded (tests/data/gpuhunt): mapped to nodes and regions, and merged into a file of a
site without changing what the site set."""

import io
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import requests
from skuwise.__main__ import main
from skuwise.advisor.billing.offers import PROVIDERS, Offers, merge, offers_document, read_offers
from skuwise.advisor.cli import prices
from skuwise.advisor.show.writers.text import document_text
from skuwise.rules.base.errors import SkuwiseError
from skuwise.rules.catalog.loader import ANY_REGION
from skuwise.rules.catalog.price_files import load_prices
from skuwise.tests.support.moves_builders import catalog

DATA = Path(__file__).parents[3] / "data/gpuhunt"
HOST = "https://dstack-gpu-pricing.s3.eu-west-1.amazonaws.com/v3"
VERSION = "20260806-812"
HEAD = (DATA / "oci.csv").read_text().splitlines()[0]


def archive(name: str, text: str, how: int = zipfile.ZIP_STORED) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", how) as file:
        file.writestr(f"{name}.csv", text)
    return content.getvalue()


DEFLATED = archive("aws", HEAD, zipfile.ZIP_DEFLATED)


def recorded(**instead: bytes) -> Callable[[str], bytes]:
    """The host of the catalog, as recorded; `instead`: other archives by provider. Any other address fails."""

    def fetch(url: str) -> bytes:
        assert url.startswith(f"{HOST}/")
        name, *rest = url.removeprefix(f"{HOST}/").split("/")
        if not (DATA / f"{name}.csv").exists() and name not in instead:
            raise OSError("status 403")
        if rest == ["version"]:
            return f"{VERSION}\n".encode()
        assert rest == [VERSION, "catalog.zip"]
        return instead.get(name) or archive(name, (DATA / f"{name}.csv").read_text())

    return fetch


def offers(provider: str, *rows: str) -> Offers:
    name = PROVIDERS[provider]
    return read_offers(
        provider, catalog(), recorded(**({name: archive(name, "\n".join((HEAD, *rows)))} if rows else {}))
    )


@pytest.mark.parametrize(
    ("provider", "on_demand", "spot", "unknown"),
    [
        ("aws", {("aws/p5.48xlarge", "us-west-1"): 68.8,
                 **{("aws/p5en.48xlarge", region): 63.296 for region in ("us-east-1", "us-east-2", "us-west-2")},
                 ("aws/p5en.48xlarge", "eu-north-1"): 67.7267, ("aws/p5en.48xlarge", "us-west-1"): 79.12},
         6, ["g7.2xlarge (1 x RTXPRO4500)"]),
        ("gcp", {("gcp/g4-standard-48", "us-central1"): 4.5001, ("gcp/g4-standard-384", "us-central1"): 36.0006},
         3, ["g4-standard-192 (4 x RTXPRO6000)", "g4-standard-96 (2 x RTXPRO6000)"]),
        ("lambda", {("lambda/gpu_1x_a100_sxm4", ANY_REGION): 1.29}, 0, ["gpu_1x_a100 (1 x A100)"]),
        ("nebius", {("nebius/gpu-h100-sxm_1gpu-16vcpu-200gb", "eu-north1"): 2.95}, 0, []),
        ("oci", {("oci/BM.GPU.H100.8", ANY_REGION): 80.0}, 0, []),
        ("runpod", {("runpod/1x H100 PCIe (Secure)", ANY_REGION): 2.39,
                    ("runpod/1x H100 SXM (Community)", ANY_REGION): 2.69,
                    ("runpod/1x H100 SXM (Secure)", ANY_REGION): 2.99},
         0, ["NVIDIA B200 (2 x B200)", "NVIDIA RTX A6000 (2 x A6000)"]),
        ("verda", {("verda/1H100.80S.32V", "FIN-02"): 2.19, ("verda/1H100.80S.32V", "ICE-01"): 2.19},
         0, ["1H100.80S.30V (1 x H100)"]),
    ],
)  # fmt: skip
def test_offers_are_of_our_nodes_and_regions_and_others_are_named(provider, on_demand, spot, unknown) -> None:
    read = offers(provider)
    assert (read.version, read.as_of, read.unreadable) == (VERSION, "2026-08-06", 0)
    assert read.on_demand == on_demand
    assert (len(read.spot), list(read.unknown)) == (spot, unknown)


@pytest.mark.parametrize(
    ("provider", "start", "end", "unreadable", "unknown"),
    [
        # Reserved in a calendar, as gpuhunt marks it; and a TPU.
        ("gcp", "a3-highgpu-8g,us-east4-a,44", "8,H100,80,False,,nvidia,gcp-dws-calendar-mode,x86,{}", 0, 0),
        ("gcp", "v5litepod-8,us-east4-a,9.6", "1,v5litepod-8,128,False,,google,,x86,{}", 0, 0),
        ("aws", "p5.48xlarge,us-east-1,55.04", "4,H100,80,False,,nvidia,,x86,{}", 0, 1),
        ("aws", "p5.48xlarge,us-east-1,55.04", "8,A100,80,False,,nvidia,,x86,{}", 0, 1),
        ("aws", "p5.48xlarge,us-east-1,nan", "8,H100,80,False,,nvidia,,x86,{}", 1, 0),
        ("aws", "p5.48xlarge,us-east-1,0", "8,H100,80,False,,nvidia,,x86,{}", 1, 0),
        ("aws", 'p5.48xlarge,"us-east-1} #",55.04', "8,H100,80,False,,nvidia,,x86,{}", 1, 0),
        ("aws", "p5.48xlarge,us-east-1,55.04", "eight,H100,80,False,,nvidia,,x86,{}", 1, 0),
    ],
)  # fmt: skip
def test_an_offer_that_is_no_price_of_a_node_gives_none(provider, start, end, unreadable, unknown) -> None:
    read = offers(provider, f"{start},192,2048,{end}", "m5.large,x,1,1,1,0,,,False,,,,x86,{}")
    assert (read.on_demand, read.spot, read.unreadable, len(read.unknown)) == ({}, {}, unreadable, unknown)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"<html>", "not a zip file"), (archive("azure", HEAD), "aws.csv"), (archive("aws", "a,b\n1,2"), "no row"),
        (archive("aws", HEAD), "no row"), (archive("aws", HEAD).replace(b"price", b"prize"), "Bad CRC-32"),
        (DEFLATED[:37] + b"\xff" * 9 + DEFLATED[46:], "Error -3"),
    ],
)  # fmt: skip
def test_a_broken_part_of_the_catalog_is_an_error_of_its_provider(content, said) -> None:
    with pytest.raises(SkuwiseError, match=f"The offers of aws cannot be read: .*{said}"):
        read_offers("aws", catalog(), recorded(aws=content))
    with pytest.raises(SkuwiseError, match="its version is not"):
        read_offers("aws", catalog(), lambda url: b"../../x")


def test_a_site_keeps_its_prices_and_comments_and_a_failed_provider_its_earlier_ones(
    tmp_path, monkeypatch, capsys
) -> None:
    old = 'basis: list, source: "gpuhunt catalog 1", as_of: 2026-01-03'
    site = f"""# ours
prices:
# contract 4711
- sku: aws/p5en.48xlarge
  region: us-east-1
  usd_per_hour: 41.5
  basis: negotiated
  source: contract 4711
  as_of: 2026-01-01
- {{sku: oci/BM.GPU.H100.8, region: global, usd_per_hour: 70, basis: list, source: quote, as_of: 2026-01-02}}
- {{sku: "azure/Standard_NC6s_v3", region: "eastus", usd_per_hour: 3.06, {old}}}
- {{sku: "aws/p5.48xlarge", region: "eu-north-1", usd_per_hour: 58.9, {old}}}
power:
  - {{region: global, usd_per_kwh: 0.1, source: bill, as_of: 2026-01-01}}
"""  # fmt: skip
    file = tmp_path / "prices.yaml"
    file.write_text(site)
    (tmp_path / "skuwise").mkdir()
    (tmp_path / "skuwise/skuwise.toml").write_text('prices.gpu_hour_usd = { "RTX-PRO-6000-Blackwell-Server" = 1.2 }')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(prices, "_fetch", recorded())
    assert main(["prices", "update", "--output", str(file)]) == 1  # azure failed: it has no record
    said = capsys.readouterr().err
    assert "The offers of azure cannot be read: status 403." in said and f"12 prices written to {file}" in said
    kept = [line for line in site.splitlines() if "eu-north-1" not in line]
    assert [line for line in file.read_text().splitlines() if line in kept] == kept
    by_place = {(p.sku, p.region): p for p in load_prices(file, catalog().nodes).prices}
    assert by_place["aws/p5en.48xlarge", "us-east-1"].usd_per_hour == 41.5
    assert by_place["aws/p5en.48xlarge", "eu-north-1"].source == f"gpuhunt catalog {VERSION}"
    assert by_place["azure/Standard_NC6s_v3", "eastus"].as_of == "2026-01-03"
    assert ("aws/p5.48xlarge", "eu-north-1") not in by_place  # no longer offered
    assert not any(sku.startswith("gcp/g4") for sku, _ in by_place)  # priced in the settings
    assert [p.usd_per_hour for place, p in by_place.items() if place[0].startswith("oci/")] == [70]
    before = file.read_text()
    assert main(["prices", "update", "--output", str(file), "--provider", "aws"]) == 0
    assert sorted(file.read_text().splitlines()) == sorted(before.splitlines())


def test_a_file_without_a_list_of_prices_gets_one_and_one_in_a_line_is_left_alone() -> None:
    text, count = merge("power: []\n", "f", [offers("oci")])
    assert (count, text.splitlines()[:2]) == (1, ["power: []", "prices:"])
    with pytest.raises(SkuwiseError, match="in one line"):
        merge("prices: []\n", "f", [offers("oci")])


def test_the_page_has_spot_apart_and_names_what_is_far_from_the_list_price() -> None:
    page = document_text(offers_document([offers("aws"), offers("lambda")], catalog()), width=140, color=False)
    line = next(line for line in page.splitlines() if "p5en.48xlarge" in line)
    assert line.split() == ["aws/p5en.48xlarge", "5", "$63.30", "to", "$79.12", "$26.57", "to", "$79.12", "$63.30"]
    assert "lambda/gpu_1x_a100_sxm4 in global: $1.29, list price $1.99" in page
    assert "1 type" in page and "g7.2xlarge (1 x RTXPRO4500)" in page


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (SimpleNamespace(status_code=302, content=b"x"), "h answers with status 302"),
        (requests.ReadTimeout("http://elsewhere"), "no answer of h (ReadTimeout)"),
    ],
)
def test_no_other_host_is_asked_and_an_error_is_in_our_words(monkeypatch, answer, said) -> None:
    def get(url: str, *, timeout: float, allow_redirects: bool) -> object:
        assert (url, timeout, allow_redirects) == ("https://h/v", 60.0, False)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(requests, "get", get)
    with pytest.raises(OSError, match=re.escape(said)):
        prices._fetch("https://h/v")


def test_no_offers_at_all_write_nothing(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(prices, "_fetch", recorded(azure=b"<html>"))
    file = tmp_path / "prices.yaml"
    assert main(["prices", "update", "--provider", "azure", "--output", str(file)]) == 1
    assert "No offers were read." in capsys.readouterr().err and not file.exists()
