"""The leader's work on quotas, beside its decisions: says on each what it comes to, and has overused ones give back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from koord.kube.client import Client
from koord.kube.recorder import EventRecorder
from koord_scheduler.quotarevocation import QuotaRevocation, revokes
from koord_scheduler.quotastatus import QuotaStatusWriter
from koord_scheduler.view import ClusterView


class QuotaWork:
    """``client``: the leader's. ``status``, ``revocation``: None where there is nothing to do."""

    def __init__(
        self, client: Client, view: ClusterView, recorder: EventRecorder, monotonic_s: Callable[[], float]
    ) -> None:
        settings, self._state, self._seen = view.quotas.settings, view.state, -1
        self.status = None if settings is None else QuotaStatusWriter(client, view.state)
        self.revocation: QuotaRevocation | None = None
        if settings is not None and revokes(settings):
            self.revocation = QuotaRevocation(
                *(client, view.state, settings, recorder, monotonic_s, view.current_budgets),
                gang_of=lambda pod: str(view.gangs.of(pod.uid) or ""),
            )

    def happened(self) -> None:
        """Something has changed, perhaps what quotas come to."""
        forest = self._state.quotas.up_to_date()
        if forest is None or forest.version == self._seen:
            return
        self._seen = forest.version
        for each in (self.status, self.revocation):
            if each is not None:
                each.changed()

    async def run(self) -> None:
        """Works until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for each in (self.status, self.revocation):
                if each is not None:
                    group.create_task(each.run())
