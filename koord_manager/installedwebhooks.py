"""What is wrong with the installed webhook configurations, said once for as long as it is so.

A webhook that is not in ours is never asked, without a word. One of Koordinator's that still calls our Service is asked
beside ours, or asks for what is not served here. Invariant: of all configurations only the certificate of ours is
written, so all else is the operator's to put right.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from koord.kube.kind import MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION
from koord.kube.recorder import EventRecorder, EventType, Subject
from koord.model.core import ObjectMeta
from koord.tls.certificatestore import Configurations
from koord.tls.servingcerts import Service, WebhookConfiguration
from koord_manager.options import WEBHOOK_GATES

_log = logging.getLogger(__name__)
SECRET_NAME = "koordinator-webhook-certs"
CONFIGURATIONS: Configurations = {
    MUTATING_WEBHOOK_CONFIGURATION.name: (MUTATING_WEBHOOK_CONFIGURATION, "koord-mutating-webhook-configuration"),
    VALIDATING_WEBHOOK_CONFIGURATION.name: (VALIDATING_WEBHOOK_CONFIGURATION, "koord-validating-webhook-configuration"),
}
"""Ours. Their names are their own, since Koordinator's manager writes those of its names whole: what it does not serve
goes, and what it alone serves is not ours to replace."""
KOORDINATORS: Configurations = {
    MUTATING_WEBHOOK_CONFIGURATION.name: (
        MUTATING_WEBHOOK_CONFIGURATION,
        "koordinator-mutating-webhook-configuration",
    ),
    VALIDATING_WEBHOOK_CONFIGURATION.name: (
        VALIDATING_WEBHOOK_CONFIGURATION,
        "koordinator-validating-webhook-configuration",
    ),
}
"""Those of Koordinator's manager, likewise, which are only read."""
MISSING, LEFT_OVER = "WebhookMissing", "WebhookLeftOver"
_KINDS = {"m": MUTATING_WEBHOOK_CONFIGURATION.name, "v": VALIDATING_WEBHOOK_CONFIGURATION.name}
"""By the first letter of a webhook's name, as upstream names them."""


class InstalledWebhooks:
    """``service``: of this manager's webhooks. ``is_on``: of a gate. ``may_record``: whether this replica writes
    Events."""

    def __init__(
        self, service: Service, is_on: Callable[[str], bool], recorder: EventRecorder, may_record: Callable[[], bool]
    ) -> None:
        self._service, self._is_on, self._recorder, self._may_record = service, is_on, recorder, may_record
        self._logged: dict[str, str] = {}
        self._recorded: dict[str, str] = {}
        """By configuration, what was said of it last."""

    def look(self, configurations: Iterable[WebhookConfiguration]) -> None:
        """Says what is news about the configurations as they are now: of our names, and of Koordinator's.

        One of ours that is not among them is as one without webhooks.
        """
        found = {(each.kind, each.metadata.name): each for each in configurations}
        for kind_name, (_, own_name) in CONFIGURATIONS.items():
            found.setdefault((kind_name, own_name), WebhookConfiguration(kind_name, ObjectMeta(name=own_name)))
        for configuration in found.values():
            kind, own_name = CONFIGURATIONS[configuration.kind]
            is_own, name = configuration.metadata.name == own_name, f"{kind} {configuration.metadata.name}"
            sentence = self._lack(configuration) if is_own else self._left_over(configuration)
            if _is_news(sentence, name, self._logged):
                _log.warning("%s %s", name, sentence)
            if self._may_record() and _is_news(sentence, name, self._recorded):
                subject, reason = Subject.of(kind, configuration.metadata), MISSING if is_own else LEFT_OVER
                self._recorder.record(subject, EventType.WARNING, reason, sentence)

    def _lack(self, configuration: WebhookConfiguration) -> str:
        names = {webhook.name for webhook in configuration.webhooks or ()}
        wanted = [
            name for name, gate in WEBHOOK_GATES.items() if _KINDS[name[0]] == configuration.kind and self._is_on(gate)
        ]
        lacking = [name for name in wanted if name not in names]
        if not lacking:
            return ""
        gates = ", ".join(WEBHOOK_GATES[name] for name in lacking)
        return (
            f"lacks {', '.join(lacking)}, so the API server asks no webhook there though the gate is on ({gates}): "
            "apply the configuration again"
        )

    def _left_over(self, configuration: WebhookConfiguration) -> str:
        webhooks = configuration.webhooks or ()
        ours = [webhook.name for webhook in webhooks if self._service.is_target(webhook.client_config)]
        if not ours:
            return ""
        twice = [name for name in ours if name in WEBHOOK_GATES]
        unserved = [name for name in ours if name not in WEBHOOK_GATES]
        consequences = [
            f"{', '.join(twice)} asked beside {CONFIGURATIONS[configuration.kind][1]}" if twice else "",
            f"{', '.join(unserved)} served by nobody" if unserved else "",
        ]
        return (
            f"calls {self._service.name}, which is Koord's: {'; '.join(filter(None, consequences))}. Delete it, or let "
            "it name the Service of Koordinator's manager where that one is kept (docs/migration.md)"
        )


def _is_news(sentence: str, name: str, said: dict[str, str]) -> bool:
    """Remembers it."""
    is_news = bool(sentence) and said.get(name) != sentence
    said[name] = sentence
    return is_news
