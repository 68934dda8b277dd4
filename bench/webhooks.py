"""What a created pod pays for koord-manager's webhooks, on a real API server. ``python -m bench.webhooks``.

Pods are created in an open loop, at the instants of a Poisson process, whether or not earlier ones are answered, and
latency counts from the intended instant. Turns of half a second go in an order drawn by lot to a namespace that the
webhooks leave alone and to one whose pods a profile changes (both webhooks are asked). Beside them stand the times at
the handlers, by the manager's own histogram: the upper bound of the bucket that holds the percentile; TLS, HTTP and the
wait for the manager's event loop are outside of it. The manager's CPU is divided by the time of those turns that asked.
"""

from __future__ import annotations

import argparse
import queue
import re
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench import stats
from bench.nodelinkprocesses import cpu_s
from bench.schedule import TURN_S, Turn, schedule
from integration.cluster import controlplane, manager, objects
from integration.cluster.api import Api
from integration.cluster.controlplane import ControlPlane
from integration.cluster.manager import Replica

CLIENTS = 32
ALONE, ASKED = "kube-system", "batch-demo"
PROFILES = "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles"
PROFILE = {
    "apiVersion": "config.koordinator.sh/v1alpha1",
    "kind": "ClusterColocationProfile",
    "metadata": {"name": "batch"},
    "spec": {"selector": {"matchLabels": {"app-type": "batch"}}, "qosClass": "BE", "priorityClassName": "koord-batch"},
}
TARGET_MS = 15.0
_BUCKET = re.compile(
    r'koord_manager_webhook_duration_seconds_bucket\{le="([^"]+)",path="([^"]+)",result="allowed"\} (\S+)'
)
Buckets = Mapping[str, Mapping[float, float]]
"""By path: how many requests took no longer than so many seconds."""


@dataclass
class Client:
    """Creates pods at their instants. ``latencies_ms``: by namespace, a list for each turn."""

    plane: ControlPlane
    latencies_ms: dict[str, list[list[float]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    _work: queue.Queue[tuple[float, str, str, list[float]] | None] = field(default_factory=queue.Queue)

    def run(self, turns: list[Turn]) -> None:
        threads = [threading.Thread(target=self._serve) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        number = 0
        for turn in turns:
            begun_s, kept = time.monotonic() + 0.01, list[float]()
            self.latencies_ms.setdefault(turn.side, []).append(kept)
            for due_us in turn.due_us:
                due_s = begun_s + due_us / 1e6
                if due_us > TURN_S * 1e6:
                    break
                time.sleep(max(0.0, due_s - time.monotonic()))
                number += 1
                self._work.put((due_s, turn.side, f"p{number}", kept))
            time.sleep(max(0.0, begun_s + TURN_S - time.monotonic()))
        for _ in threads:
            self._work.put(None)
        for thread in threads:
            thread.join()

    def _serve(self) -> None:
        amounts = {"cpu": "1", "memory": "1Gi"}
        with self.plane.api() as api:
            while (item := self._work.get()) is not None:
                due_s, namespace, name, kept = item
                try:
                    api.create(objects.pods_of(namespace), objects.pod(name, amounts, amounts, {"app-type": "batch"}))
                except Exception as error:  # noqa: BLE001 - the root of a client: the figure says how many failed
                    self.failures.append(str(error))
                else:
                    kept.append((time.monotonic() - due_s) * 1e3)


def buckets(page: str) -> Buckets:
    found: dict[str, dict[float, float]] = {}
    for bound, path, count in _BUCKET.findall(page):
        found.setdefault(path, {})[float(bound)] = float(count)
    return found


def percentile_ms(before: Mapping[float, float], after: Mapping[float, float], percent: float) -> float:
    """The upper bound of the bucket that holds it."""
    counts = {bound: after[bound] - before.get(bound, 0.0) for bound in sorted(after)}
    total = max(counts.values())
    return next(bound for bound, count in counts.items() if count >= total * percent / 100) * 1e3


def prepared(plane: ControlPlane, api: Api) -> Replica:
    """A replica that is asked about pods, and a profile that selects them."""
    manager.install(plane)
    manager.configure(api, {"colocation-config": '{"enable": true}'})
    api.create("/api/v1/namespaces", {"metadata": {"name": ASKED}})
    api.create(PROFILES, PROFILE)
    replica = Replica(plane, "manager")
    replica.wait_ready()
    manager.send_webhooks_to(api, replica)
    time.sleep(2)  # the API server takes up webhook configurations by a watch
    return replica


def main() -> int:
    parser = argparse.ArgumentParser(description="What pods pay for koord-manager's webhooks.")
    parser.add_argument("--rate", type=float, default=200.0, help="pods created each second (default: 200)")
    parser.add_argument("--seconds", type=float, default=30.0, help="on each side (default: 30)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="koord-bench-") as name, controlplane.private(Path(name, "plane")) as plane:
        with plane.api() as api:
            replica = prepared(plane, api)
        try:
            return report(plane, replica, options.rate, options.seconds)
        finally:
            replica.process.stop()


def report(plane: ControlPlane, replica: Replica, rate_per_s: float, seconds: float) -> int:
    Client(plane).run([])  # imports and threads
    before, used_s = buckets(replica.page("metrics")), cpu_s(replica.process.pid)
    client = Client(plane)
    client.run(schedule((ALONE, ASKED), seconds, rate_per_s))
    asked_s, used_s = TURN_S * len(client.latencies_ms[ASKED]), cpu_s(replica.process.pid) - used_s
    after = buckets(replica.page("metrics"))
    samples = {namespace: stats.all_of(turns) for namespace, turns in client.latencies_ms.items()}
    for namespace, label in ((ALONE, "API server alone"), (ASKED, "with both webhooks")):
        p50, p99 = (stats.percentile(samples[namespace], percent) for percent in (50.0, 99.0))
        print(f"create, {label:20} {len(samples[namespace]):6} pods  p50 {p50:6.1f} ms  p99 {p99:6.1f} ms")
    at_handlers = []
    for path in sorted(after):
        p50, p99 = (percentile_ms(before.get(path, {}), after[path], percent) for percent in (50.0, 99.0))
        at_handlers.append(p99)
        print(f"handler, {path:19} p50 <= {p50:g} ms  p99 <= {p99:g} ms")
    failed = f"{len(client.failures)} pods failed {client.failures[:1]}"
    print(f"koord-manager: {used_s / asked_s:.2f} core while asked; {failed}")
    added_ms = statistics.median(samples[ASKED]) - statistics.median(samples[ALONE])
    verdict = "met" if max(at_handlers) <= TARGET_MS else "missed"
    print(
        f"bench-webhooks: p99 at the handlers <= {max(at_handlers):g} ms at {rate_per_s:g} creates/s "
        f"(target {TARGET_MS:g} ms: {verdict}); a create's p50 +{added_ms:.1f} ms"
    )
    return 1 if client.failures else 0


if __name__ == "__main__":
    sys.exit(main())
