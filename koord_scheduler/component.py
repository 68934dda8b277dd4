"""koord-scheduler in the frame of a component: every replica follows the cluster, the leader places pods."""

from __future__ import annotations

import time
from collections.abc import Mapping

from koord.cluster import frame
from koord.cluster.frame import Component, Frame
from koord.scheduling.defaults import default_plugins
from koord.scheduling.framework import Framework
from koord.scheduling.state import ClusterState
from koord_scheduler.options import NAME, Options
from koord_scheduler.scheduler import Scheduler
from koord_scheduler.view import ClusterView


async def run(options: Options, environ: Mapping[str, str]) -> None:
    """Serves until SIGTERM or SIGINT. Raises KubeError or OSError if it cannot start."""
    await frame.run(NAME, NAME, options, environ, lambda made: SchedulerComponent(made, options))


class SchedulerComponent(Component):
    def __init__(self, frame: Frame, options: Options) -> None:
        framework = Framework(ClusterState(), default_plugins(), options.seed)
        self._view = ClusterView(frame.client, framework, options.scheduler_names, time.monotonic)
        self._scheduler = Scheduler(frame.leaders_client, framework, self._view, frame.recorder)
        super().__init__(self._view.informers)

    async def follow(self) -> None:
        await self._view.run()

    async def synced(self) -> None:
        await self._view.synced()

    async def lead(self) -> None:
        await self._scheduler.run()
