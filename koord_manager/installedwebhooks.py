"""What the installed webhook configurations lack of what the gates want, said once for as long as it lacks.

Another release's manager that still runs, or its chart, may write the configurations; a webhook that is not in them is
never asked, without a word. Invariant: nobody's configuration is changed here but for the certificate, so what lacks is
the operator's to put back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from koord.kube.recorder import EventType, Recorder, Subject
from koord.kube.servingcerts import WebhookConfiguration
from koord_manager.certificatestore import CONFIGURATIONS
from koord_manager.options import WEBHOOK_GATES

_log = logging.getLogger(__name__)
REASON = "WebhookMissing"
_KINDS = {"m": "MutatingWebhookConfiguration", "v": "ValidatingWebhookConfiguration"}
"""By the first letter of a webhook's name, as upstream names them."""


class InstalledWebhooks:
    """``is_on``: of a gate. ``may_record``: whether this replica writes Events."""

    def __init__(self, is_on: Callable[[str], bool], recorder: Recorder, may_record: Callable[[], bool]) -> None:
        self._is_on, self._recorder, self._may_record = is_on, recorder, may_record
        self._logged: dict[str, str] = {}
        self._recorded: dict[str, str] = {}
        """By kind of configuration, what was said of it last."""

    def look(self, configurations: Iterable[WebhookConfiguration]) -> None:
        """Says what is news about the configurations as they are now."""
        for configuration in configurations:
            names = {webhook.name for webhook in configuration.webhooks or ()}
            lacking = [name for name in self._wanted(configuration.kind) if name not in names]
            sentence = _sentence(lacking)
            if _is_news(sentence, configuration.kind, self._logged):
                _log.warning("%s %s", configuration.kind, sentence)
            if self._may_record() and _is_news(sentence, configuration.kind, self._recorded):
                kind, _ = CONFIGURATIONS[configuration.kind]
                subject = Subject.of(kind, configuration.metadata)
                self._recorder.record(subject, EventType.WARNING, REASON, sentence)

    def _wanted(self, kind: str) -> list[str]:
        return [name for name, gate in WEBHOOK_GATES.items() if _KINDS[name[0]] == kind and self._is_on(gate)]


def _is_news(sentence: str, kind: str, said: dict[str, str]) -> bool:
    """Remembers it."""
    is_news = bool(sentence) and said.get(kind) != sentence
    said[kind] = sentence
    return is_news


def _sentence(lacking: list[str]) -> str:
    if not lacking:
        return ""
    gates = ", ".join(WEBHOOK_GATES[name] for name in lacking)
    return f"lacks {', '.join(lacking)}, so the API server asks nobody, though {gates} is on: apply it again"
