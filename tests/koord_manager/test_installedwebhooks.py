"""Webhooks that the gates want and ours lack, and those of Koordinator's that call us: each is said once, by the leader
as an Event, too."""

from __future__ import annotations

import logging

import pytest

from koord.kube.recorder import EventType, Subject
from koord.model.core import ObjectMeta
from koord.tls.servingcerts import ClientConfig, Service, ServiceReference, Webhook, WebhookConfiguration
from koord_manager.installedwebhooks import CONFIGURATIONS, KOORDINATORS, InstalledWebhooks
from koord_manager.options import NODE_MUTATING, POD_MUTATING, POD_VALIDATING

POD, NODE, VALIDATION = "mpod-create.koordinator.sh", "mnode-status.koordinator.sh", "vpod.koordinator.sh"


NAMESPACE = "koordinator-system"
SERVICE = Service("koordinator-webhook-service", NAMESPACE)
CALLS_US = ClientConfig(ServiceReference(SERVICE.name, NAMESPACE))
CALLS_ANOTHER = ClientConfig(ServiceReference("quota-webhook-service", NAMESPACE))


class Events(list[str]):
    def record(self, subject: Subject, type_: EventType, reason: str, message: str) -> None:
        self.append(f"{subject.kind.name} {reason}: {message}")


def configuration(*names: str, kind: str = "MutatingWebhookConfiguration") -> WebhookConfiguration:
    own = ObjectMeta(name=CONFIGURATIONS[kind][1])
    return WebhookConfiguration(kind, own, tuple(Webhook(name=name) for name in names))


def koordinators(**webhooks: ClientConfig) -> WebhookConfiguration:
    kind = "MutatingWebhookConfiguration"
    entries = tuple(Webhook(f"{name.replace('_', '-')}.koordinator.sh", config) for name, config in webhooks.items())
    return WebhookConfiguration(kind, ObjectMeta(name=KOORDINATORS[kind][1]), entries)


@pytest.mark.parametrize(
    ("gates", "found", "lacking"),
    [
        ({POD_MUTATING}, None, POD),
        (set(), None, ""),
        ({POD_MUTATING}, configuration(POD), ""),
        ({POD_MUTATING}, configuration(POD, "another.example.com"), ""),
        ({POD_MUTATING, NODE_MUTATING}, configuration(POD), NODE),
        ({POD_MUTATING, NODE_MUTATING}, configuration(), f"{POD}, {NODE}"),
        ({POD_VALIDATING}, configuration(), VALIDATION),
        ({POD_VALIDATING}, configuration(kind="ValidatingWebhookConfiguration"), VALIDATION),
        (set(), configuration(), ""),
    ],
)
def test_what_lacks(gates: set[str], found: WebhookConfiguration | None, lacking: str) -> None:
    """None: there is none."""
    events, configurations = Events(), () if found is None else (found,)
    InstalledWebhooks(SERVICE, gates.__contains__, events, lambda: True).look(configurations)  # type: ignore[arg-type]
    assert len(events) == bool(lacking)
    assert all(f"WebhookMissing: lacks {lacking}, so" in event for event in events)


def test_it_is_said_once_for_as_long_as_it_lacks(caplog: pytest.LogCaptureFixture) -> None:
    events, leads = Events(), False
    installed = InstalledWebhooks(SERVICE, {POD_MUTATING}.__contains__, events, lambda: leads)  # type: ignore[arg-type]
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


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (koordinators(mpod_create=CALLS_ANOTHER, melasticquota=CALLS_ANOTHER), ""),
        (koordinators(), ""),
        (
            koordinators(mpod_create=CALLS_US, melasticquota=CALLS_ANOTHER),
            "mpod-create.koordinator.sh asked beside koord-mutating-webhook-configuration. Delete",
        ),
        (
            koordinators(mpod_create=CALLS_US, mpod_update=CALLS_US, melasticquota=CALLS_US),
            "melasticquota.koordinator.sh asked beside koord-mutating-webhook-configuration; "
            "mpod-update.koordinator.sh served by nobody. Delete",
        ),
    ],
)
def test_what_koordinators_ask_us_for(found: WebhookConfiguration, said: str) -> None:
    events = Events()
    installed = InstalledWebhooks(SERVICE, {POD_MUTATING}.__contains__, events, lambda: True)  # type: ignore[arg-type]
    for _ in range(2):
        installed.look([configuration(POD), found])
    assert len(events) == bool(said)
    assert all("WebhookLeftOver: calls koordinator-webhook-service" in event and said in event for event in events)
