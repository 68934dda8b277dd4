"""Shortages on the kernel and a real containerd: all steps in their order, no other pod touched, everything put back.

A toy strategy states the shortage, and a best-effort pod of two processes that never rest gives. cgroup v1: stock
kernels have no throttle for memory, so the shortage is one of CPU; for one of memory, page cache is reclaimed.
"""

from __future__ import annotations

import dataclasses
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from integration.demo import pods
from integration.harness import cgroups
from integration.harness.containerd import Containerd
from integration.harness.cri import Cri
from integration.harness.pods import Container, Pod
from integration.harness.processes import wait_for
from integration.harness.proxy import RULES
from integration.node.conftest import MakeDaemon
from integration.node.daemon import Daemon, Row
from integration.node.toys import LACKS
from koord.pb.cri import api_pb2 as pb

BUSY = ("/bin/sh", "-c", "trap '' TERM; head -c 4000000 /dev/zero >/file; echo started; while :; do :; done")
"""With page cache of its own, since steps that free next to nothing are left out."""
MIB = 1 << 20
STEPS_S = 40.0
"""Five seconds for each of two steps, and the end of the pod."""
SEEN_S = 60.0
"""On a machine with other load, a pod with two shares waits long."""
BOUND_S = 12.0
"""A freeze lasts for ten seconds at most, with the daemon or without."""


class Lacking:
    """The daemon with the toy, a busy best-effort pod, and a latency-sensitive one that must stay untouched."""

    def __init__(self, daemon: Daemon, client: Cri, root: str) -> None:
        self.daemon, self.client, self.root = daemon, client, root
        self.job = dataclasses.replace(pods.best_effort(root, "job"), containers=(Container("worker", command=BUSY),))
        self.ids = self.start(self.job)
        self.web = pods.latency_sensitive(root)
        self.web_ids = self.start(self.web)
        wait_for(lambda: self.usage() > 0.3, SEEN_S, "the job to be seen using CPU")

    def start(self, pod: Pod) -> dict[str, str]:
        cgroups.make_pod(pod)
        return self.client.run(pod)[1]

    def usage(self, metric: str = "pod_cpu_usage_cores") -> float:
        """Of the job, as the daemon sees it."""
        answer = self.daemon.koordctl("metrics", metric)
        samples = [sample for metric in answer.get("metrics", ()) for sample in metric.get("samples", ())]
        return max((sample.get("value", 0.0) for sample in samples if "job" in sample.get("label", "")), default=0.0)

    def lack(self, *lines: str) -> None:
        file = self.daemon.directory / "state" / LACKS
        file.write_text("\n".join(lines))

    def state(self, id_: str) -> pb.ContainerState:
        return self.client.container_status(id_).status.state

    def freezer(self) -> str:
        return Path(f"/sys/fs/cgroup/freezer/{self.job.cgroup_parent.strip('/')}/freezer.state").read_text().strip()

    def rows(self) -> list[Row]:
        """Of the journal, what relief has done to the job."""
        of_job = f"{self.job.namespace}/{self.job.name}"
        return [row for row in self.daemon.journal() if row.pod == of_job and row.owner != "hooks"]

    def explained(self) -> dict[str, str]:
        """How far the eviction of the job is."""
        files = self.daemon.koordctl("explain", "pod", self.job.name).get("files", ())
        return next((file for file in files if file["name"] == "pod.eviction"), {})


@pytest.fixture
def lacking(kubepods: str, make_daemon: MakeDaemon, containerd1: Containerd) -> Iterator[Lacking]:
    daemon = make_daemon(RULES, socket=containerd1.socket, module="integration.node.toys")
    with ExitStack() as stack:
        stack.callback(containerd1.remove_pods)
        client = stack.enter_context(Cri(containerd1.socket))
        cgroups.make(f"{kubepods}/besteffort")
        daemon.start()
        yield Lacking(daemon, client, kubepods)


def test_throttled_frozen_evicted(lacking: Lacking, figure: Callable[[str], None]) -> None:
    (worker,), (web,) = lacking.ids.values(), lacking.web_ids.values()
    cgroup = f"{lacking.job.cgroup_parent}/{worker}"
    quota_us = cgroups.read(cgroup).cfs_quota_us
    began_s = time.monotonic()
    lacking.lack("cpu 100000")
    wait_for(lambda: cgroups.read(cgroup).cfs_quota_us == 10_000, STEPS_S, "the job to be throttled")
    wait_for(lambda: lacking.freezer() == "FROZEN", STEPS_S, "the job to be frozen")
    wait_for(lambda: lacking.state(worker) == pb.CONTAINER_EXITED, STEPS_S, "the job to be evicted")
    took_s = time.monotonic() - began_s
    wait_for(lambda: lacking.explained().get("actual") == "stopped", STEPS_S, "explain to say so")
    assert lacking.freezer() == "THAWED"
    assert lacking.state(web) == pb.CONTAINER_RUNNING
    lacking.daemon.stop()
    steps = [(row.name, row.after, row.result) for row in lacking.rows()]
    order = [("cpu_quota", 10_000, "done"), ("cgroup.freeze", 1, "done"), ("pod.eviction", "stopped", "done")]
    assert [step for step in steps if step in order] == order
    assert ("pod.eviction", "stopped", "stopping") in steps
    touched = {row.pod for row in lacking.daemon.journal() if "eviction" in row.owner.split(", ")}
    assert touched == {"default/job"}
    figure(f"throttled, frozen and evicted in {took_s:.1f} s; its quota was {quota_us} us")


def test_killed_while_the_job_is_frozen_and_another_time_while_it_goes(lacking: Lacking) -> None:
    """The next daemon thaws a pod when the shortage is over, and ends an eviction that the last one began."""
    (worker,) = lacking.ids.values()
    cgroup = f"{lacking.job.cgroup_parent}/{worker}"
    quota_us = cgroups.read(cgroup).cfs_quota_us
    lacking.lack("cpu 100000")
    wait_for(lambda: lacking.freezer() == "FROZEN", STEPS_S, "the job to be frozen")
    lacking.daemon.kill()
    lacking.lack()
    lacking.daemon.start()
    wait_for(lambda: lacking.freezer() == "THAWED", STEPS_S, "the job to run again")
    wait_for(lambda: cgroups.read(cgroup).cfs_quota_us in (quota_us, 50_000), STEPS_S, "its quota to be what it was")
    wait_for(lambda: lacking.usage() > 0.3, SEEN_S, "the job to be seen using CPU")
    lacking.lack("cpu 100000")
    undo = lacking.daemon.undo_file
    wait_for(lambda: b'"evicting"' in undo.read_bytes(), STEPS_S, "the eviction to be noted")
    lacking.daemon.kill()
    lacking.lack()
    lacking.daemon.start()
    wait_for(lambda: lacking.state(worker) == pb.CONTAINER_EXITED, STEPS_S, "the job to be evicted")
    assert not lacking.daemon.complaints()


def test_idle_pages_go_first_where_memory_lacks(lacking: Lacking) -> None:
    os.sync()  # an order takes no page that is not written yet
    wait_for(lambda: lacking.usage("pod_memory_reclaimable_bytes") > MIB, SEEN_S, "the job's pages to be seen written")
    lacking.lack(f"memory {MIB}")
    wait_for(
        lambda: [row.result for row in lacking.rows() if row.name == "memory.force_empty"] == ["done"],
        STEPS_S,
        "its idle pages to be reclaimed",
    )
    lacking.lack()
    lacking.daemon.stop()
    (row,) = (row for row in lacking.rows() if row.name == "memory.force_empty")
    assert "memory must be freed (the toy says so); reclaim: default/job uses" in row.why


def stopped(lacking: Lacking) -> None:
    lacking.daemon.stop()


def killed_and_given_back(lacking: Lacking) -> None:
    """As systemd does after it."""
    lacking.daemon.kill()
    assert lacking.freezer() == "FROZEN"
    lacking.daemon.give_back()


def given_back_beside_one_that_hangs(lacking: Lacking) -> None:
    """As kubelet does before it ends the pod."""
    os.kill(lacking.daemon.pid, signal.SIGSTOP)
    lacking.daemon.give_back()
    assert lacking.freezer() == "FROZEN", "it might be another daemon's"
    lacking.daemon.give_back("--beside")


def started_again_without_a_runtime(lacking: Lacking) -> None:
    lacking.daemon.kill()
    lacking.daemon.runtime = lacking.daemon.directory / "nobody.sock"
    lacking.daemon.start()


def on_a_full_disk(lacking: Lacking) -> None:
    """The daemon lives, the shortage is over, and no undo note can be written: no file of the daemon may grow."""
    limit = lacking.daemon.undo_file.stat().st_size
    resource.prlimit(lacking.daemon.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))


def stopped_on_a_full_disk(lacking: Lacking) -> None:
    on_a_full_disk(lacking)
    lacking.daemon.stop()


@pytest.mark.parametrize(
    "how",
    [
        stopped,
        killed_and_given_back,
        given_back_beside_one_that_hangs,
        started_again_without_a_runtime,
        stopped_on_a_full_disk,
        on_a_full_disk,
    ],
)
def test_a_pod_that_stands_still_runs_again_without_the_daemon(
    lacking: Lacking, how: Callable[[Lacking], None], figure: Callable[[str], None]
) -> None:
    """Its quota, which was lowered before the freeze, comes back as well; lasting values stay."""
    (worker,) = lacking.ids.values()
    cgroup = f"{lacking.job.cgroup_parent}/{worker}"
    quota_us = cgroups.read(cgroup).cfs_quota_us
    lacking.lack("cpu 100000")
    wait_for(lambda: lacking.freezer() == "FROZEN", STEPS_S, "the job to be frozen")
    assert cgroups.read(cgroup).cfs_quota_us == 10_000
    lacking.lack()
    began_s = time.monotonic()
    how(lacking)
    wait_for(lambda: lacking.freezer() == "THAWED", BOUND_S, "the job to run again")
    figure(f"{how.__name__}: runs again after {time.monotonic() - began_s:.1f} s")
    if how is not on_a_full_disk:  # a throttle lasts until nothing has lacked for 30 s
        assert cgroups.read(cgroup).cfs_quota_us in (quota_us, 50_000)
