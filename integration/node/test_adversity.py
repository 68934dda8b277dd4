"""What goes wrong on nodes: each is said in a line of its own, and the daemon goes on with all the rest.

That it goes on is seen at the CPU sets of an LS pod, which follow the rules file.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from integration.demo import pods
from integration.harness import cgroups
from integration.harness.containerd import Containerd
from integration.harness.cri import Cri
from integration.harness.pods import Pod
from integration.harness.processes import HarnessError, wait_for
from integration.node import cpusets, doctor, trouble
from integration.node.conftest import MakeDaemon
from integration.node.daemon import Daemon
from qosd.act.journal import Journal, JournalEntry

SOON_S = 8.0


def pool(cpus: str) -> str:
    """Rules by which LS pods run on ``cpus``."""
    return f'node: {{sharedPools: {{ls: [{{socket: 0, node: 0, cpuset: "{cpus}"}}]}}}}\n'


def run(client: Cri, pod: Pod) -> list[str]:
    """Start the pod as kubelet does; the cgroups of its container and its sandbox."""
    cgroups.make_pod(pod)
    sandbox_id, ids = client.run(pod)
    return [f"{pod.cgroup_parent}/{id_}" for id_ in (*ids.values(), sandbox_id)]


@pytest.fixture
def groups(cri: Cri, kubepods: str) -> list[str]:
    """An LS pod that runs: the cgroups of its container and its sandbox."""
    return run(cri, pods.latency_sensitive(kubepods))


def started(daemon: Daemon) -> Daemon:
    daemon.start()
    return daemon


def rule(daemon: Daemon, content: bytes | str) -> Path:
    """Put another rules file in the place of the old one, at once."""
    file = daemon.directory / "rules.yaml"
    new = file.with_suffix(".new")
    new.write_bytes(content.encode() if isinstance(content, str) else content)
    new.replace(file)
    return file


def follows(daemon: Daemon, groups: list[str], cpus: str) -> None:
    """The daemon still does its work."""
    rule(daemon, pool(cpus))
    wait_for(lambda: cpusets.of(groups) == {cpus}, SOON_S, f"CPUs {cpus} for {groups}")


def says(daemon: Daemon, text: str) -> str:
    """The line of the log that has ``text``, as soon as there is one."""

    def found() -> str | None:
        return next((line for line in daemon.log.splitlines() if text in line), None)

    try:
        return wait_for(found, SOON_S, f"{text!r} in the log")
    except HarnessError as error:
        raise HarnessError(f"{error}\n{daemon.log}") from error


def warnings(daemon: Daemon) -> list[str]:
    found: list[str] = daemon.koordctl("node")["warnings"]
    return found


def warns(daemon: Daemon, text: str) -> str:
    """The warning that has ``text``, as soon as there is one."""
    return wait_for(lambda: next((line for line in warnings(daemon) if text in line), None), SOON_S, f"{text!r}")


def warns_no_more(daemon: Daemon, text: str) -> None:
    wait_for(lambda: not any(text in line for line in warnings(daemon)), SOON_S, f"an end of {text!r}")


# --- configuration ---------------------------------------------------------------------------------------------------

BAD_RULES = {
    "no YAML": (b"node: [", "is not YAML"),
    "no mapping": (b"- node\n", "must be a mapping"),
    "no UTF-8": (b"node: \xff\n", "is not UTF-8"),
    "an unknown section": (b"nodes: {}\n", "is no section"),
    "a wrong value": (pool("0-x").encode(), "node.sharedPools.ls[0].cpuset"),
}


def test_a_bad_rules_file_changes_nothing(make_daemon: MakeDaemon, cri: Cri, groups: list[str], kubepods: str) -> None:
    daemon = started(make_daemon("node: ["))
    file = daemon.directory / "rules.yaml"
    assert f"{file}: is not YAML" in says(daemon, "no policy is known: every strategy is frozen")
    batch = run(cri, pods.best_effort(kubepods))[0]
    quota_us = cgroups.read(batch).cfs_quota_us
    wait_for(lambda: daemon.koordctl("pods"), SOON_S, "the pods to be known")
    assert quota_us != 50_000 and cgroups.read(batch).cfs_quota_us == quota_us
    follows(daemon, groups, "1")
    wait_for(lambda: cgroups.read(batch).cfs_quota_us == 50_000, SOON_S, "the first good rules")
    warns_no_more(daemon, "no policy is known")
    for content, why in BAD_RULES.values():
        rule(daemon, content)
        warning = warns(daemon, why)
        assert str(file) in warning and "the last good rules stay" in warning
        assert cpusets.of(groups) == {"1"}
    file.unlink()
    file.mkdir()
    warns(daemon, "cannot be read: Is a directory")
    file.rmdir()
    follows(daemon, groups, "0")
    assert not daemon.complaints()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"tick-interval: [", "is not YAML"),
        (b"tick-intervall: 1\n", "tick-intervall: is no option; there are "),
        (b"tick-interval: often\n", "tick-interval = 'often': must be float"),
        (b"\xff", "is not UTF-8"),
        (None, "does not exist"),
    ],
)
def test_a_bad_option_file_is_refused_with_its_name(tmp_path: Path, content: bytes | None, said: str) -> None:
    """An operator is there to read it: systemd shows it, and the values of the last run stay in the kernel."""
    file = tmp_path / "options.yaml"
    if content is not None:
        file.write_bytes(content)
    argv = [sys.executable, "-m", "qosd", "--config", str(file)]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=SOON_S)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith(f"koord-qosd: {file}") and said in done.stderr


def test_a_kubelet_of_another_cgroup_driver(make_daemon: MakeDaemon, groups: list[str], tmp_path: Path) -> None:
    with trouble.kubelet_that_says("cgroupDriver: systemd\n", tmp_path / "kubelet") as file:
        daemon = started(make_daemon())
        said = f"{file} makes it /kubepods.slice, "  # which does not exist
        assert " warning " in says(daemon, said)
        assert warns(daemon, said)
        found = doctor.findings(daemon)["cgroup-driver"]
        assert found.startswith("fail: ") and said in found
        follows(daemon, groups, "1")


# --- disks -----------------------------------------------------------------------------------------------------------


def test_a_full_disk_under_the_journal(make_daemon: MakeDaemon, groups: list[str]) -> None:
    daemon = make_daemon(pool("0"))
    with trouble.small_disk(daemon.directory / "state", kib=512) as disk:
        daemon.start()
        follows(daemon, groups, "1")
        wait_for(daemon.journal, SOON_S, "entries of the journal")
        trouble.fill(disk)
        for cpus in ("0", "1") * 5:
            follows(daemon, groups, cpus)
        assert str(daemon.journal_file) in says(daemon, "journal: ")
        assert "database or disk is full" in warns(daemon, "journal: ")
        written = len(daemon.journal())
        trouble.empty(disk)
        warns_no_more(daemon, "journal: ")
        moves = [row.after for row in daemon.journal() if row.cgroup == groups[0] and row.name == "cpuset_cpus"]
        assert [move for move in moves if move in ("0", "1")][-10:] == ["0", "1"] * 5  # the queue has held them
        assert len(daemon.journal()) > written
        trouble.fill(disk)
        follows(daemon, groups, "0")
        assert daemon.stop() == 0
        assert " warning " in says(daemon, f"journal: {2 * len(groups)} entries are lost")


def entry(number: int) -> JournalEntry:
    """One that fills a page of the database."""
    return JournalEntry(number, number, number, "hooks", "", "/g", "cpu_quota", "/p", 1, 2, "done", "x" * 4096)


def test_what_the_journal_s_queue_cannot_hold_is_counted(tmp_path: Path) -> None:
    with trouble.small_disk(tmp_path / "state", kib=512) as disk, Journal(
        disk / "journal.db", queue_size=8, pause_s=0.05
    ) as journal:  # fmt: skip
        journal.record(entry(0))
        assert journal.flush()
        trouble.fill(disk)
        for number in range(1, 100):
            journal.record(entry(number))
        wait_for(lambda: "full" in journal.problem, SOON_S, "the journal to notice")
        trouble.empty(disk)
        assert journal.flush()
        assert journal.dropped >= 100 - 2 * 8 and journal.problem == ""
        assert len(journal.query(limit=1000)) == 100 - journal.dropped


def test_a_journal_begun_again_on_a_full_disk(tmp_path: Path) -> None:
    with trouble.small_disk(tmp_path / "state", kib=512) as disk:
        file = disk / "journal.db"
        with Journal(file) as journal:
            journal.record(entry(0))
        trouble.fill(disk)
        with Journal(file, pause_s=0.05) as journal:
            journal.record(entry(1))
            wait_for(lambda: "disk is full" in journal.problem, SOON_S, "the journal to notice")
            trouble.empty(disk)
            assert journal.flush() and journal.problem == ""
            assert [row.tick for row in journal.query()] == [1, 0]


def test_a_full_run_directory_forbids_every_write(make_daemon: MakeDaemon, groups: list[str]) -> None:
    daemon = make_daemon(pool("0"))
    with trouble.small_disk(daemon.directory / "run", kib=32) as disk:
        daemon.start()
        follows(daemon, groups, "1")
        trouble.fill(disk)
        why = "not written, because what to put back cannot be noted: "
        for turn in range(40):  # the file's last page still has room
            rule(daemon, pool(cpus := "01"[turn % 2]))
            wait_for(lambda: cpusets.of(groups) == {cpus} or why in daemon.log, SOON_S, "a move or a refusal")
            if why in daemon.log:
                break
        assert "No space left on device" in says(daemon, why)
        rows = wait_for(lambda: [row for row in daemon.journal() if row.result == "refused"], SOON_S, "the journal")
        refused = next(iter(rows))
        file = cgroups.hierarchies()["cpuset"] / refused.cgroup.lstrip("/") / "cpuset.cpus"
        assert why in refused.why and file.read_text().strip() == refused.before
        trouble.empty(disk)
        wait_for(lambda: cpusets.of(groups) == {cpus}, SOON_S, "the write to be made good")
        daemon.stop()
        trouble.fill(disk)
        refusals = daemon.log.count(why)
        daemon.start()
        rule(daemon, pool(cpus := "01"[cpus == "0"]))
        wait_for(lambda: daemon.log.count(why) > refusals, SOON_S, "a refusal after a start on the full directory")
        assert cpusets.of(groups) != {cpus}
        trouble.empty(disk)
        wait_for(lambda: cpusets.of(groups) == {cpus}, SOON_S, "the write to be made good")
        daemon.stop()


# --- kernel files ----------------------------------------------------------------------------------------------------


def loops(daemon: Daemon) -> dict[str, str]:
    """The problem of each collector or source that has one."""
    return {one["name"]: one["last_error"] for one in daemon.koordctl("node")["loops"] if one["failures"]}


def measured(daemon: Daemon, metric: str) -> set[str]:
    """The cgroups of which there is a sample."""
    found = daemon.koordctl("metrics", metric)["metrics"]
    return {sample["subject"] for each in found for sample in each["samples"]}


def test_unreadable_cgroup_files(make_daemon: MakeDaemon, cri: Cri, groups: list[str], kubepods: str) -> None:
    """Those of one container: its CPU set, and what a collector reads. All others are measured and written."""
    batch = run(cri, pods.best_effort(kubepods))[0]
    mounts, broken = cgroups.hierarchies(), groups[0].lstrip("/")
    files = [mounts["cpuset"] / broken / "cpuset.cpus", mounts["cpuacct"] / broken / "cpuacct.usage"]
    with trouble.unreadable(*files):
        daemon = started(make_daemon(pool("0")))
        follows(daemon, groups[1:], "1")
        for file in files:
            assert " warning " in says(daemon, f"cannot read: Input/output error: '{file}'")
        wait_for(lambda: batch in measured(daemon, "container_cpu_usage_cores"), SOON_S, "the others to be measured")
        assert groups[0] not in measured(daemon, "container_cpu_usage_cores")
    follows(daemon, groups, "0")
    wait_for(lambda: groups[0] in measured(daemon, "container_cpu_usage_cores"), SOON_S, "it to be measured again")
    assert not daemon.complaints()


def test_too_few_descriptors(make_daemon: MakeDaemon, cri: Cri, groups: list[str], kubepods: str) -> None:
    """First a low limit at the start, then one so low that there are none left at all (EMFILE)."""
    daemon = make_daemon(pool("0"))
    daemon.start(prefix=("prlimit", "--nofile=280"))
    says(daemon, "keeping 24 descriptors, the most allowed: further kernel files are opened and closed for each read")
    follows(daemon, groups, "1")
    daemon.stop()
    daemon.start()
    wait_for(lambda: len(measured(daemon, "container_cpu_usage_cores")) == 1, SOON_S, "the container to be measured")
    _, hard = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (len(daemon.descriptors()) + 4, hard))
    batch = run(cri, pods.best_effort(kubepods))
    assert "opened and closed for each read" in says(daemon, "Too many open files with ")
    wait_for(lambda: len(measured(daemon, "container_cpu_usage_cores")) == 2, SOON_S, "the new one to be measured")
    wait_for(lambda: cgroups.read(batch[0]).cfs_quota_us == 50_000, SOON_S, "the new pod's values")
    follows(daemon, groups, "0")
    assert not daemon.complaints()


# --- neighbours ------------------------------------------------------------------------------------------------------


def test_the_runtime_restarts(
    make_daemon: MakeDaemon, containerd1: Containerd, cri: Cri, groups: list[str], kubepods: str
) -> None:
    daemon = started(make_daemon(pool("0")))
    follows(daemon, groups, "1")
    containerd1.stop()
    try:
        daemon.run_koordctl("node", "--socket", str(daemon.socket))
        os.kill(daemon.pid, signal.SIGHUP)  # which also asks the runtime
        assert str(containerd1.socket) in says(daemon, "pods stay as they are: ")
        assert warns(daemon, str(containerd1.socket))
        follows(daemon, groups, "0")
    finally:
        containerd1.start()
    says(daemon, "runtime answers again")
    warns_no_more(daemon, str(containerd1.socket))
    wait_for(cri.ready, SOON_S, "the client to be connected again")
    batch = run(cri, pods.best_effort(kubepods))
    wait_for(lambda: cgroups.read(batch[0]).cfs_quota_us == 50_000, SOON_S, "the new pod's values")
    assert not daemon.complaints()


def test_the_runtime_comes_late(make_daemon: MakeDaemon, runtime: Path, groups: list[str], tmp_path: Path) -> None:
    late = tmp_path / "late.sock"
    daemon = started(make_daemon(pool("0"), socket=late))
    assert str(late) in says(daemon, "pods stay as they are: ")
    assert warns(daemon, str(late))
    assert daemon.page("/readyz") == (
        503,
        "the pods are not known yet: neither the runtime nor kubelet has answered\n",
    )
    late.symlink_to(runtime)
    wait_for(lambda: cpusets.of(groups) == {"0"}, SOON_S, "the pods to be known")
    assert daemon.page("/readyz")[0] == 200
    assert not daemon.complaints()


@pytest.mark.parametrize(
    "answer",
    [b"220 mail ESMTP\r\n", b"HTTP/1.0 200 OK\r\n\r\n<html>", b'HTTP/1.0 200 OK\r\n\r\n{"items": [{"metadata": 7}]}'],
)
def test_a_kubelet_that_answers_garbage(make_daemon: MakeDaemon, groups: list[str], answer: bytes) -> None:
    with trouble.server_that_answers(answer) as port:
        daemon = started(make_daemon(pool("0"), ("--kubelet-endpoint", f"http://127.0.0.1:{port}")))
        assert " warning " in says(daemon, f"http://127.0.0.1:{port}/pods: ")
        assert warns(daemon, f"http://127.0.0.1:{port}/pods: ")
        follows(daemon, groups, "1")
        assert not daemon.complaints()


def test_two_at_once(make_daemon: MakeDaemon, groups: list[str]) -> None:
    """A second one with sockets of its own, so that nothing but the undo record tells it of the first.

    It looks on only, or it would stand by.
    """
    first, second = started(make_daemon(pool("0"))), make_daemon(pool("1"))
    second.flags = ("--run-dir", str(first.undo_file.parent), "--dry-run")
    with pytest.raises(HarnessError, match="ended with 1"):
        second.start()
    assert " error " in says(second, f"the undo record is in use by a running koord-qosd: '{first.undo_file}'")
    assert not second.complaints()
    follows(first, groups, "1")
