"""What systemd is told, and that nothing it does can hurt."""

from __future__ import annotations

from skuwise.agent.service.runtime.notify import Notifier


def test_who_starts_us_again_is_systemd_or_the_kubelet() -> None:
    assert not Notifier({}).supervised
    assert Notifier({"KUBERNETES_SERVICE_HOST": "10.96.0.1"}).supervised
    notifier = Notifier({"NOTIFY_SOCKET": "@nobody-listens"})
    assert notifier.supervised
    notifier.close()
