"""How requests identify us. Secrets are read again for each request: tokens live an hour.

The login of a cloud comes from the provider's own library, an extra of the package, and its usual places.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from functools import cache
from urllib.parse import urlsplit

from requests import PreparedRequest
from requests.auth import AuthBase, _basic_auth_str

from .....rules.base.errors import UsageError
from ....core.credentials import secret
from ..settings import PrometheusSettings
from .response import UnreachableError

GOOGLE_SCOPE = "https://www.googleapis.com/auth/monitoring.read"
AZURE_SCOPE = "https://prometheus.monitor.azure.com/.default"
_AWS_HOST = re.compile(r"aps-workspaces(?:-fips)?\.([a-z0-9-]+)\.amazonaws\.com")
_Sign = Callable[[PreparedRequest], None]


class Login(AuthBase):
    """Adds the headers of settings and files to each request, then the token or signature of a cloud.

    Raises UsageError where a file cannot be read, settings exclude each other or an extra is not installed.
    """

    def __init__(self, url: str, settings: PrometheusSettings, environ: Mapping[str, str]) -> None:
        self._settings, self._environ, self._sign = settings, environ, None
        if sum(map(bool, (settings.bearer_token_file, settings.username, settings.login))) > 1:
            raise UsageError(
                "Conflicting settings: only one of prometheus.bearer_token_file, username and login can be used.",
                "Remove the others.",
            )
        self.headers()  # what is wrong with a file is said before the first query
        if settings.login:
            try:
                self._sign = _CLOUDS[settings.login](url, settings)
            except ImportError:
                raise UsageError(
                    f'prometheus.login = "{settings.login}" needs a package that is not installed.',
                    f"Run pip install 'skuwise[{settings.login}]'.",
                ) from None

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        request.headers.update(self.headers())
        if self._sign is not None:
            try:
                self._sign(request)
            except Exception as error:
                # Each library has errors of its own, and their words may quote a credential.
                raise UnreachableError(
                    f"Login to {self._settings.login} failed ({type(error).__name__}).",
                    "Check the credentials with the cloud's own command.",
                ) from None
        return request

    def headers(self) -> dict[str, str]:
        settings, environ = self._settings, self._environ
        headers = {**settings.headers, **{name: secret(file, environ) for name, file in settings.header_files.items()}}
        if settings.tenant:
            headers["X-Scope-OrgID"] = settings.tenant
        if settings.bearer_token_file:
            headers["Authorization"] = f"Bearer {secret(settings.bearer_token_file, environ)}"
        if settings.username:
            password = secret(settings.password_file, environ) if settings.password_file else ""
            # UTF-8, as RFC 7617 has it.
            headers["Authorization"] = _basic_auth_str(settings.username.encode(), password.encode())
        for name, value in headers.items():
            if not value.isascii() or value != value.strip():
                raise UsageError(
                    f"Invalid value of header {name}: only ASCII is allowed, without spaces around it.",
                    "Fix the header value.",
                )
        return headers


def _aws(url: str, settings: PrometheusSettings) -> _Sign:
    """Signature Version 4 for Amazon Managed Service for Prometheus."""
    auth, aws_request = map(importlib.import_module, ("botocore.auth", "botocore.awsrequest"))
    session = importlib.import_module("botocore.session").get_session()
    host = _AWS_HOST.fullmatch(urlsplit(url).hostname or "")
    region = settings.aws_region or (host[1] if host else session.get_config_variable("region"))
    if not region:
        raise UsageError("The AWS region is unknown.", "Set prometheus.aws_region.")

    def sign(request: PreparedRequest) -> None:
        # A space is signed as %20; requests writes + for it, and %2B for a plus.
        request.url = (request.url or "").replace("+", "%20")
        signed = aws_request.AWSRequest(request.method, request.url, data=request.body)
        if content_type := request.headers.get("Content-Type"):
            signed.headers["Content-Type"] = content_type
        credentials = session.get_credentials()  # None raises NoCredentialsError below
        frozen = credentials and credentials.get_frozen_credentials()
        auth.SigV4Auth(frozen, "aps", region).add_auth(signed)
        request.headers.update(dict(signed.headers.items()))

    return sign


def _google(_url: str, _settings: PrometheusSettings) -> _Sign:
    """Application default credentials for Google Cloud Managed Service for Prometheus."""
    auth = importlib.import_module("google.auth")
    transport = importlib.import_module("google.auth.transport.requests").Request()
    default = cache(lambda: auth.default(scopes=[GOOGLE_SCOPE])[0])

    def sign(request: PreparedRequest) -> None:
        if not default().valid:  # no token yet, or it expires within minutes
            default().refresh(transport)
        request.headers["Authorization"] = f"Bearer {default().token}"

    return sign


def _azure(_url: str, _settings: PrometheusSettings) -> _Sign:
    """The default credential for Azure Monitor workspaces; its library keeps a token until it expires."""
    credential = importlib.import_module("azure.identity").DefaultAzureCredential()
    return lambda request: request.headers.update(Authorization=f"Bearer {credential.get_token(AZURE_SCOPE).token}")


_CLOUDS = {"aws": _aws, "google": _google, "azure": _azure}
