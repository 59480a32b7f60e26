"""The metrics page as clients reach it: good ones, slow ones, hostile ones, and a real Prometheus."""

from __future__ import annotations

from skuwise.agent.service.exporter.answers import parse_request


def test_requests_are_parsed_strictly() -> None:
    parsed = parse_request(b"GET /metrics?a=b HTTP/1.1\r\nAccept: a\r\naccept: b\r\nX:")
    assert parsed == ("GET", "/metrics", {"accept": "a,b", "x": ""})
    assert parse_request(b"GET /\xff HTTP/1.1") == ("GET", "/\xff", {})
