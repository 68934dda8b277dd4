"""koord-scheduler in the frame of a component: every replica follows the cluster, the leader places pods."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping

from koord.cluster import frame
from koord.cluster.frame import Component, Frame
from koord.model.schedulerpages import ANNOTATION_STATUS_PORT
from koord.scheduling.plugins.unsupported import UNSUPPORTED
from koord_scheduler import decisions, serverversion
from koord_scheduler.configuration import Configuration
from koord_scheduler.decisions import Decisions
from koord_scheduler.explaining import Explainer
from koord_scheduler.extenders import Extenders
from koord_scheduler.metrics import UPSTREAMS_PREFIX, Metrics, SchedulingMetrics
from koord_scheduler.options import NAME, Options
from koord_scheduler.pages import SchedulerPages, configuration_page
from koord_scheduler.scheduler import Scheduler
from koord_scheduler.usagestream import UsageStream
from koord_scheduler.view import ClusterView

_log = logging.getLogger(__name__)


async def run(options: Options, configuration: Configuration, environ: Mapping[str, str]) -> None:
    """Serves until SIGTERM or SIGINT. Raises KubeError or OSError if it cannot start."""
    tell(configuration)
    lease = configuration.lease
    await frame.run(NAME, lease, options, environ, lambda made: SchedulerComponent(made, options, configuration))


class SchedulerComponent(Component):
    def __init__(self, frame: Frame, options: Options, configuration: Configuration) -> None:
        profiles, backoff = configuration.profiles, configuration.backoff
        self._client, own, counted = frame.client, Metrics(), SchedulingMetrics()
        extenders = Extenders(configuration.extenders, own.extender_told)
        kept = Decisions(options.debug_scores, options.debug_filters)
        best_count = max(decisions.BEST, options.debug_scores)
        view = self._view = ClusterView(
            frame.client, profiles, time.monotonic, options.seed, backoff, extenders.need_nodes, best_count
        )
        self._stream: UsageStream | None = None
        if view.usage is not None and options.cluster_state:
            user = f"system:serviceaccount:{options.config_namespace}:{options.service_account}"
            self._stream = UsageStream(
                frame.client, view.state.loads, view.usage_changed, user, options.config_namespace, time.time
            )
        self._scheduler = Scheduler(
            frame.leaders_client, view, frame.recorder, metrics=counted, extenders=extenders, decisions=kept
        )
        super().__init__(view.informers, own, {UPSTREAMS_PREFIX: counted})
        served = SchedulerPages(Explainer(view, kept, time.monotonic, time.time), view.state, lambda: frame.leads)
        self.local_pages = served.makers(configuration_page(options, configuration))
        port = options.metrics_addr.rpartition(":")[2]
        frame.lease_annotations = lambda: {ANNOTATION_STATUS_PORT: port}
        window = self._scheduler.binding.window
        own.binding_window, own.bindings_under_way = lambda: window.size, lambda: float(window.under_way)
        own.usage_stream = lambda: float(self._stream is not None and bool(self._stream.source))
        own.measured_nodes = lambda: {source.value: count for source, count in view.state.loads.sources().items()}
        own.unreadable_pods = lambda: float(len(view.problems))
        counted.pending_pods, counted.cache_size = view.queue.counts, view.state.counts
        counted.queue_incoming_pods = lambda: view.queue.incoming
        counted.waiting_gang_group_number = lambda: float(view.gangs.waiting_group_count())
        counted.unschedulable_pods = lambda: view.queue.rejected

    async def follow(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._view.run())
            if self._stream is not None:
                group.create_task(self._stream.run())

    async def synced(self) -> None:
        """Asks for the API server's version before any pod is scored."""
        await self._view.synced()
        self._view.score_as(await serverversion.minor_of(self._client))

    async def lead(self) -> None:
        await self._scheduler.run()


def tell(configuration: Configuration) -> None:
    """Says what the configuration asks for in vain, and whose pods are placed."""
    for each in UNSUPPORTED:
        _log.info("%s is not part of this version: a pod with %s is not placed, and is told so", each.name, each.asks)
    told = {each.name for each in UNSUPPORTED}
    for name in (each for each in configuration.missing if each not in told):
        _log.warning("the plugin %s is not part of this version: pods are placed without it", name)
    for note in configuration.notes:
        _log.info("%s", note)
    _log.info("places the pods of %s", ", ".join(profile.name for profile in configuration.profiles))
