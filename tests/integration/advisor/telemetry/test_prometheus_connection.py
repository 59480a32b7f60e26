"""How a server is reached: through a proxy, with certificates, and what is said where it is down."""

from __future__ import annotations

import contextlib
import socket
import ssl
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import trustme
from skuwise.advisor.telemetry.prometheus.client.client import Client
from skuwise.advisor.telemetry.prometheus.client.response import Grid, UnreachableError
from skuwise.advisor.telemetry.prometheus.settings import PrometheusSettings
from skuwise.rules.base.errors import SourceError, UsageError
from skuwise.tests.support.fake_prometheus import FakeServer, matrix, vector

GRID = Grid(3600.0, 3 * 3600.0, 3600.0)


def test_a_server_that_is_down_is_said_in_a_sentence() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    client = Client(url, PrometheusSettings(), {}, sleep=lambda _: None)
    with pytest.raises(UnreachableError, match="connection failed") as caught:
        client.scalar("vector(1)", 0.0)
    assert isinstance(caught.value, SourceError) and caught.value.remedy


def test_a_proxy_is_used_where_it_is_set() -> None:
    with FakeServer(lambda _: vector(({}, 1))).running() as proxy:
        client = Client("http://prometheus.invalid:9090/base/", PrometheusSettings(proxy=proxy.url), {})
        assert client.scalar("vector(1)", 0.0) == 1
        assert proxy.requests[0].path == "/base/api/v1/query"


def test_a_missing_certificate_is_a_wrong_setting() -> None:
    client = Client("https://127.0.0.1:1", PrometheusSettings(ca_file="/nonexistent/ca.pem"), {}, sleep=lambda _: None)
    with pytest.raises(UsageError, match="certificate"):
        client.scalar("vector(1)", 0.0)


def test_a_server_with_an_authority_of_its_own_is_shown_our_certificate(tmp_path: Path) -> None:
    authority, strangers = trustme.CA(), trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    authority.configure_trust(tls)
    tls.verify_mode = ssl.CERT_REQUIRED
    ours = authority.issue_cert("advisor@example.org")
    files = {name: str(tmp_path / name) for name in ("ca", "other", "cert", "key")}
    authority.cert_pem.write_to_path(files["ca"])
    strangers.cert_pem.write_to_path(files["other"])
    ours.cert_chain_pems[0].write_to_path(files["cert"])
    ours.private_key_pem.write_to_path(files["key"])
    known = {"client_cert_file": files["cert"], "client_key_file": files["key"]}

    with FakeServer(lambda request: matrix(request, ({}, 1)), tls).running() as fake:

        def told(**settings: str) -> np.ndarray:
            client = Client(fake.url, replace(PrometheusSettings(), **settings), {}, sleep=lambda _: None)
            with contextlib.closing(client):
                return client.range("up", GRID).values

        assert told(ca_file=files["ca"], **known).tolist() == [[1, 1, 1]]
        for wrong in ({"ca_file": files["ca"]}, {"ca_file": files["other"], **known}, known):
            with pytest.raises(UnreachableError):
                told(**wrong)
