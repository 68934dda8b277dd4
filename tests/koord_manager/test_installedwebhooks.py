"""Webhooks that the gates want and the configurations lack: each is said once, by the leader as an Event, too."""

from __future__ import annotations

import logging

import pytest

from koord.kube.recorder import EventType, Subject
from koord.kube.servingcerts import Webhook, WebhookConfiguration
from koord.model.core import ObjectMeta
from koord_manager.installedwebhooks import InstalledWebhooks
from koord_manager.options import NODE_MUTATING, POD_MUTATING, POD_VALIDATING

POD, NODE, VALIDATION = "mpod-create.koordinator.sh", "mnode-status.koordinator.sh", "vpod.koordinator.sh"


class Events(list[str]):
    def record(self, subject: Subject, type_: EventType, reason: str, message: str) -> None:
        self.append(f"{subject.kind.name} {reason}: {message}")


def configuration(*names: str, kind: str = "MutatingWebhookConfiguration") -> WebhookConfiguration:
    return WebhookConfiguration(kind, ObjectMeta(name="c"), tuple(Webhook(name=name) for name in names))


@pytest.mark.parametrize(
    ("gates", "found", "lacking"),
    [
        ({POD_MUTATING}, configuration(POD), ""),
        ({POD_MUTATING}, configuration(POD, "another.example.com"), ""),
        ({POD_MUTATING, NODE_MUTATING}, configuration(POD), NODE),
        ({POD_MUTATING, NODE_MUTATING}, configuration(), f"{POD}, {NODE}"),
        ({POD_VALIDATING}, configuration(), ""),
        ({POD_VALIDATING}, configuration(kind="ValidatingWebhookConfiguration"), VALIDATION),
        (set(), configuration(), ""),
    ],
)
def test_what_lacks(gates: set[str], found: WebhookConfiguration, lacking: str) -> None:
    events = Events()
    InstalledWebhooks(gates.__contains__, events, lambda: True).look([found])  # type: ignore[arg-type]
    assert len(events) == bool(lacking)
    assert all(f"WebhookMissing: lacks {lacking}, so" in event for event in events)


def test_it_is_said_once_for_as_long_as_it_lacks(caplog: pytest.LogCaptureFixture) -> None:
    events, leads = Events(), False
    installed = InstalledWebhooks({POD_MUTATING}.__contains__, events, lambda: leads)  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            installed.look([configuration()])
        assert (len(caplog.records), events) == (1, []), "who does not lead writes no Event"
        leads = True
        for _ in range(2):
            installed.look([configuration()])
        assert (len(caplog.records), len(events)) == (1, 1)
        for found in (configuration(POD), configuration()):
            installed.look([found])
    assert (len(caplog.records), len(events)) == (2, 2)
