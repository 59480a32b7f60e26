"""Logins against loopback servers that verify what they get: passwords, signatures, tokens of cloud identities."""

import contextlib
import hashlib
import hmac
import json
import socket
import ssl
import urllib.parse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import trustme
from skuwise.advisor.telemetry.prometheus.client.client import AZURE_SCOPE, GOOGLE_SCOPE, Client, PrometheusSettings
from skuwise.advisor.telemetry.prometheus.client.response import Grid, UnreachableError
from skuwise.rules.base.errors import SourceError, UsageError
from skuwise.tests.support.fake_prometheus import FakeServer, Reply, Request, error, matrix, success, vector

KEY, SECRET, SESSION = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "a-session-token"
GRID = Grid(3600.0, 3 * 3600.0, 3600.0)


def answer(request: Request) -> Reply:
    if request.path.endswith("/values"):
        return success(["up"])
    return matrix(request, ({}, 1)) if request.path.endswith("query_range") else vector(({}, 1))


def behind(accepts: Callable[[Request], bool]) -> FakeServer:
    return FakeServer(lambda request: answer(request) if accepts(request) else error(403, "no"))


def issued_token(token: str, **more: object) -> Reply:
    body = {"access_token": token, "token_type": "Bearer", **more}
    return Reply(json.dumps(body).encode(), headers={"Content-Type": "application/json"})


def ask_all(client: Client) -> None:
    assert client.scalar('up{a="b c+d"}', 0.0) == 1 and client.range("up", GRID).values.tolist() == [[1, 1, 1]]
    assert client.names('{__name__=~"up",a="b c+d"}', 0.0, 60.0) == ("up",)


def signature(request: Request, region: str) -> str:
    """The authorization of Signature Version 4, recomputed from what arrived (docs.aws.amazon.com, SigV4)."""
    headers = request.headers
    signed = headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0]
    pairs = sorted(urllib.parse.parse_qsl(request.search))
    canonical = [
        request.method, request.path, urllib.parse.urlencode(pairs, safe="-_.~", quote_via=urllib.parse.quote),
        *(f"{name}:{headers[name].strip()}" for name in signed.split(";")),
        "", signed, hashlib.sha256(request.body.encode()).hexdigest(),
    ]  # fmt: skip
    stamp = headers["x-amz-date"]
    scope = f"{stamp[:8]}/{region}/aps/aws4_request"
    digest = hashlib.sha256("\n".join(canonical).encode()).hexdigest()
    key = f"AWS4{SECRET}".encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}"
    sign = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    return f"AWS4-HMAC-SHA256 Credential={KEY}/{scope}, SignedHeaders={signed}, Signature={sign}"


def test_requests_to_amazon_are_signed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("botocore")
    secrets = {"ACCESS_KEY_ID": KEY, "SECRET_ACCESS_KEY": SECRET, "SESSION_TOKEN": SESSION}
    for name, value in {**secrets, "CONFIG_FILE": str(tmp_path / "none")}.items():
        monkeypatch.setenv(f"AWS_{name}", value)

    def accepts(request: Request) -> bool:
        authorization = request.headers["authorization"]
        signed = authorization.partition("SignedHeaders=")[2].partition(",")[0].split(";")
        has_parts = {"host", "x-amz-date", "x-amz-security-token"} <= set(signed)
        return has_parts and authorization == signature(request, "eu-west-1")

    settings = PrometheusSettings(login="aws", aws_region="eu-west-1")
    with behind(accepts).running() as server:
        ask_all(Client(f"{server.url}/workspaces/ws-1", settings, {}))
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
        with pytest.raises(UnreachableError, match="Access denied") as caught:
            Client(server.url, settings, {}).scalar("up", 0.0)
    assert "another" not in str(caught.value)


def test_google_tokens_are_fetched_for_a_service_account_and_renewed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    jwt = pytest.importorskip("google.auth.jwt")
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    rsa = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.rsa")
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = serialization.Encoding.PEM
    public = private.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    issued: list[str] = []

    def token(request: Request) -> Reply:
        audience = "https://oauth2.googleapis.com/token"
        claims = jwt.decode(request.params["assertion"], certs=public, verify=True, audience=audience)
        assert (claims["iss"], claims["scope"]) == ("reader@demo.iam.gserviceaccount.com", GOOGLE_SCOPE)
        issued.append(f"token-{len(issued)}")
        return issued_token(issued[-1], expires_in=1)  # within the skew: expired at once

    with FakeServer(token).running() as google:
        key = private.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        account = {
            "type": "service_account", "client_email": "reader@demo.iam.gserviceaccount.com", "private_key_id": "1",
            "private_key": key.decode(), "token_uri": f"{google.url}/token", "project_id": "demo",
        }  # fmt: skip
        (tmp_path / "account.json").write_text(json.dumps(account))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
        with behind(lambda request: request.headers["authorization"] == f"Bearer {issued[-1]}").running() as server:
            ask_all(Client(server.url, PrometheusSettings(login="google"), {}))
    assert len(issued) == 3


def test_azure_tokens_are_those_of_the_managed_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("azure.identity")

    def token(request: Request) -> Reply:
        assert request.headers["x-identity-header"] == "proof" and AZURE_SCOPE.startswith(request.params["resource"])
        return issued_token("azure-token", expires_on="4000000000", resource="r")

    with (
        FakeServer(token).running() as identity,
        behind(lambda request: request.headers["authorization"] == "Bearer azure-token").running() as server,
    ):
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{identity.url}/msi/token")
        monkeypatch.setenv("IDENTITY_HEADER", "proof")
        ask_all(Client(server.url, PrometheusSettings(login="azure"), {}))
    assert len(identity.requests) == 1


@pytest.mark.parametrize("login", ["aws", "google"])
def test_a_login_without_credentials_is_an_error_with_a_remedy(
    login: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip({"aws": "botocore", "google": "google.auth"}[login])
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "missing.json"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with behind(lambda _: True).running() as server:
        client = Client(server.url, PrometheusSettings(login=login, aws_region="us-east-1"), {})  # type: ignore[arg-type]
        with pytest.raises(UnreachableError, match="Login to") as caught:
            client.scalar("up", 0.0)
    assert "Check" in caught.value.remedy and not server.requests


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
        assert client.scalar("vector(1)", 0.0) == 1 and proxy.requests[0].path == "/base/api/v1/query"


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
    expected = {"client_cert_file": files["cert"], "client_key_file": files["key"]}

    with FakeServer(lambda request: matrix(request, ({}, 1)), tls).running() as fake:

        def told(**settings: str) -> np.ndarray:
            client = Client(fake.url, replace(PrometheusSettings(), **settings), {}, sleep=lambda _: None)
            with contextlib.closing(client):
                return client.range("up", GRID).values

        assert told(ca_file=files["ca"], **expected).tolist() == [[1, 1, 1]]
        for wrong in ({"ca_file": files["ca"]}, {"ca_file": files["other"], **expected}, expected):
            with pytest.raises(UnreachableError):
                told(**wrong)
