"""``koordctl top``: pictures as values, frames of every size, and the program on a real terminal."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.pb.koord import inspect_pb2 as inspect
from koordctl.exits import NoAnswer
from koordctl.fields import ListingLayout
from koordctl.screen import typed
from koordctl.values import age, amount, sparkline
from koordctl.views import frame, top
from koordctl.views.frame import View
from qosd.sense import table
from release.screenshot import Session, running
from tests.koordctl.commands.fullnode import full_scene
from tests.qosd.inspect.scenes import inspecting

POD = "/kubepods/podweb"
GIB = 1 << 30


def metric(name: str, unit: str, *samples: inspect.Sample) -> inspect.Metric:
    return inspect.Metric(name=name, unit=unit, samples=samples)


def points(*values: float) -> list[inspect.Point]:
    """One a second, the last one now."""
    return [inspect.Point(age_s=len(values) - 1 - index, value=value) for index, value in enumerate(values)]


def sample(pod: str, value: float, *history: float) -> inspect.Sample:
    return inspect.Sample(subject=f"/kubepods/pod{pod}", label=f"default/{pod}", value=value, history=points(*history))


class Node:
    """Answers as koord-qosd does; ``asked``: the methods, and the metrics with whether their history was wanted."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.observed_unix_ns = 1_790_000_000_000_000_000
        self.now_s = 0.0
        self.metrics = [
            metric("node_cpu_usage_cores", "cores", inspect.Sample(value=1.5, history=points(1.0, 1.5))),
            metric("node_be_cpu_usage_cores", "cores", inspect.Sample(value=0.5)),
            metric("node_memory_usage_bytes", "bytes", inspect.Sample(value=2 * GIB)),
            metric("node_cpu_pressure_some_avg10_percent", "percent", inspect.Sample(value=3.25)),
            metric("node_ignored", "cores", inspect.Sample(value=1)),
            metric("pod_cpu_usage_cores", "cores", sample("job", 0.5), sample("web", 2.0, 1, 2)),
            metric("pod_memory_usage_bytes", "bytes", sample("web", 3 << 20), sample("job", 5 << 20)),
        ]

    def ask(self, method: str, request: Any, answer: Any) -> Any:
        if method == "GetNode":
            self.asked.append(method)
            return inspect.GetNodeResponse(
                observed_unix_ns=self.observed_unix_ns,
                capacity=inspect.Capacity(cpus=4, memory_bytes=8 * GIB),
                cluster=inspect.Cluster(node_name="node-1"),
            )
        if method == "ListPods":
            self.asked.append(method)
            pods = [inspect.Pod(namespace="default", name=name, qos_class=qos) for name, qos in CLASSES.items()]
            return inspect.ListPodsResponse(pods=pods)
        self.asked.append((request.metric, request.history))
        chosen = [each for each in self.metrics if each.name.startswith(request.metric)]
        return inspect.MetricsResponse(observed_unix_ns=self.observed_unix_ns, metrics=chosen)

    def reader(self, interval_s: float = 1.0) -> top.PictureReader:
        return top.PictureReader(self.ask, interval_s, lambda: self.now_s)


CLASSES = {"web": "LS", "job": "BE"}
LAYOUT: ListingLayout[top.PodLine] = ListingLayout(top.PODS)


def test_the_picture() -> None:
    picture = Node().reader().read()
    assert (picture.node_name, picture.cpus, picture.memory_bytes) == ("node-1", 4, 8 * GIB)
    assert picture.node[top.CPU] == top.Figure("cores", 1.5, (1.0, 1.5))
    assert "node_ignored" not in picture.node
    assert LAYOUT.cells(picture.pods) == [
        ["default/web", "LS", "2.00", "3.0Mi", "-", "-", "-", "▅█"],
        ["default/job", "BE", "0.50", "5.0Mi", "-", "-", "-", ""],
    ]


def test_a_history_is_asked_for_once_and_what_seldom_changes_seldom() -> None:
    node = Node()
    reader = node.reader()
    reader.read()
    assert node.asked == [
        *("GetNode", "ListPods", ("node_", False), ("pod_", False)),
        *(("node_cpu_usage_cores", True), ("pod_cpu_usage_cores", True)),
    ]
    for second in (1, 2):
        node.asked.clear()
        node.now_s, node.observed_unix_ns = second, node.observed_unix_ns + 1
        picture = reader.read()
        assert node.asked == [("node_", False), ("pod_", False)]
    assert picture.node[top.CPU].history == (1.0, 1.5, 1.5, 1.5)
    assert [line.history for line in picture.pods] == [(1.0, 2.0, 2.0, 2.0), (0.5, 0.5)]
    reader.read()
    assert reader.read().node[top.CPU].history == (1.0, 1.5, 1.5, 1.5), "the same look adds nothing"
    node.asked.clear()
    node.now_s = top.SLOW_S
    reader.read()
    assert node.asked[:2] == ["GetNode", "ListPods"]


def test_the_history_of_a_pod_that_is_gone_goes() -> None:
    node = Node()
    reader = node.reader()
    reader.read()
    gone = node.metrics[5].samples.pop()
    node.observed_unix_ns += 1
    assert [line.pod for line in reader.read().pods] == ["default/job", "default/web"]
    node.metrics[5].samples.append(gone)
    node.observed_unix_ns += 1
    assert reader.read().pods[0].history == (2.0,), "it begins anew"


@pytest.mark.parametrize(
    ("points", "interval_s", "values"),
    [
        ([], 1.0, []),
        ([(2, 1.0), (1, 2.0), (0, 3.0)], 1.0, [1.0, 2.0, 3.0]),
        ([(0, 3.0), (2, 1.0), (1, 2.0)], 1.0, [1.0, 2.0, 3.0]),
        ([(3, 1.0), (2, 2.0), (1, 3.0), (0, 5.0)], 2.0, [1.5, 4.0]),
        ([(5, 1.0), (0, 2.0)], 1.0, [1.0, 2.0]),
    ],
)
def test_one_point_an_interval(points: list[tuple[float, float]], interval_s: float, values: list[float]) -> None:
    assert top.by_interval(points, interval_s) == values


@pytest.mark.parametrize(
    ("value", "full"),
    [(0, 0.01), (0.004, 0.01), (0.011, 0.02), (0.3, 0.5), (1, 1), (1.01, 2), (3, 5), (7, 10), (64, 100)],
)
def test_what_a_full_bar_means(value: float, full: float) -> None:
    assert top.round_up(value) == pytest.approx(full)


def test_what_is_shown_is_measured() -> None:
    names = {metric.name for metric in table.METRICS}
    assert {*top.NODE_METRICS} <= names
    named = {f"pod_{field.name}" for field in top.PODS.fields}
    assert named - names == {"pod_pod", "pod_qos_class", "pod_cpu_history", "pod_scale"}


def shown(view: View, width: int = 80, height: int = 24) -> list[str]:
    return frame.text(frame.frame(Node().reader().read(), view, width, height)).split("\n")


def test_a_frame_of_80_by_24(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    lines = shown(View(LAYOUT))
    assert lines[0] == "node-1  2026-09-21 14:13:20  4 CPUs  8.0 GiB  2 pods  every 1 s"
    assert lines[1] == "CPU     █████████████▌······················  38 %  1.50 of 4 CPUs"
    assert lines[2] == "  BE    ████▌·······························  12 %  0.50 by best-effort pods"
    assert lines[3] == "memory  █████████···························  25 %  2.0 of 8.0 GiB"
    assert lines[4] == "stalled CPU 3.2 %   of the last 10 s"
    assert lines[5] == "history                                   ▃▄ the last 2 s, █ is 4 CPUs"
    assert lines[7] == "POD          QOS   CPU  MEMORY  THR%  CPUW%  MEMW%  HISTORY, █ is 2 CPUs"
    assert lines[8].split() == ["default/web", "LS", "2.00", "3.0Mi", "-", "-", "-", "▅█"]
    assert lines[9].split() == ["default/job", "BE", "0.50", "5.0Mi", "-", "-", "-"]
    assert lines[23].startswith("q quit  c CPU  m memory")
    assert len(lines) == 24


@pytest.mark.parametrize(
    ("view", "pods"),
    [
        (View(LAYOUT), ["web", "job"]),
        (View(LAYOUT).sorted_by("memory_usage_bytes"), ["job", "web"]),
        (View(LAYOUT).sorted_by("memory_usage_bytes").sorted_by("memory_usage_bytes"), ["web", "job"]),
        (View(LAYOUT).sorted_by("pod"), ["job", "web"]),
        (View(LAYOUT).sorted_by("qos_class"), ["job", "web"]),
        (View(LAYOUT, filter="WE"), ["web"]),
        (View(LAYOUT, filter="be"), ["job"]),
        (View(LAYOUT, filter="default/"), ["web", "job"]),
        (View(LAYOUT, offset=1), ["web", "job"]),
        (View(LAYOUT, filter="nobody"), []),
    ],
)
def test_sorted_and_filtered(view: View, pods: list[str]) -> None:
    lines = shown(view)
    assert [line.split()[0] for line in lines[8:23] if line] == [f"default/{name}" for name in pods]
    if not pods:
        assert lines[7] == "No pod matches 'nobody'."


def test_what_is_sorted_by_is_marked() -> None:
    assert "MEMORY▼" in shown(View(LAYOUT).sorted_by("memory_usage_bytes"))[7]
    assert "POD▲" in shown(View(LAYOUT).sorted_by("pod"))[7]


def test_scrolling_is_said() -> None:
    lines = shown(View(LAYOUT, offset=1), height=10)
    assert [line.split()[0] for line in lines[8:9]] == ["default/job"]
    assert lines[9].startswith("2-2 of 2 ↑↓")


TEXTS = st.text(max_size=90) | st.sampled_from(["\x1b[2J", "a\nb", "\x9b", "x" * 300])
PODS = st.lists(
    st.builds(
        top.PodLine,
        pod=TEXTS,
        usage=st.dictionaries(
            st.sampled_from([field.name for field in top.PODS.fields]), st.floats(0, 1e12, allow_nan=False), max_size=6
        ),
        history=st.lists(st.floats(0, 1e6), max_size=300).map(tuple),
        qos_class=TEXTS,
        scale=st.floats(0, 1e6),
    ),
    max_size=40,
)


@given(PODS, st.integers(1, 250), st.integers(1, 60), st.integers(0, 50), TEXTS, st.booleans())
def test_whatever_the_pods_are_a_frame_has_the_size_of_the_screen(
    pods: list[top.PodLine], width: int, height: int, offset: int, typed_text: str, typing: bool
) -> None:
    picture = replace(Node().reader().read(), pods=tuple(pods), node_name=typed_text)
    view = View(LAYOUT, offset=offset, filter=typed_text if typing else "", typing=typing, message=typed_text)
    lines = frame.frame(picture, view, width, height)
    assert len(lines) == height
    for line in lines:
        text = "".join(span.text for span in line)
        assert len(text) <= width and (text.isprintable() or not text)


def test_before_the_first_look() -> None:
    node = Node()
    node.observed_unix_ns, node.metrics = 0, []
    lines = frame.text(frame.frame(node.reader().read(), View(LAYOUT), 80, 24)).split("\n")
    assert lines[0] == "node-1  koord-qosd has not looked at the node yet"
    assert lines[1] == "CPU     not measured" and lines[7] == "No pods."


@pytest.mark.parametrize(
    ("keys", "filter", "typing"),
    [
        (["a", "b"], "ab", True),
        (["a", "b", "backspace"], "a", True),
        (["backspace"], "", True),
        (["a", "enter"], "a", False),
        (["a", "escape"], "", False),
        (["up", "\x07"], "", True),
    ],
)
def test_typing_a_filter(keys: list[str], filter: str, typing: bool) -> None:
    view = View(LAYOUT, typing=True)
    for key in keys:
        view = typed(view, key)
    assert (view.filter, view.typing) == (filter, typing)


def test_an_absent_daemon_is_said_before_the_screen_is_taken() -> None:
    def absent(method: str, request: Any, answer: Any) -> Any:
        raise NoAnswer("no socket")

    with pytest.raises(click.ClickException, match="no socket"):
        top.PictureReader(absent, 1.0, lambda: 0.0).read()


# On a real terminal


async def on_terminal(tmp_path: Path, drive: Callable[[Session], Any], *arguments: str, **environment: str) -> Any:
    """What ``drive`` makes of ``koordctl top`` on a node, in a thread: the test answers it."""

    def play(socket: str) -> Any:
        command = [sys.executable, "-m", "koordctl", "top", "--socket", socket, *arguments]
        with running(command, environment=environment) as session:
            result = drive(session)
            assert session.screen.unknown == []
            return result

    async with inspecting(tmp_path / "i.sock", full_scene(tmp_path)) as path:
        return await asyncio.wait_for(asyncio.to_thread(play, path), 120)


@pytest.mark.parametrize("key", ["q", "\x03"], ids=["q", "Ctrl-C"])
async def test_it_quits_and_leaves_the_terminal_as_it_was(tmp_path: Path, key: str) -> None:
    def drive(session: Session) -> None:
        screen = session.wait(lambda screen: "default/job" in screen.text)
        during = (screen.is_alternate, screen.is_cursor_shown)
        session.send(key)
        assert session.end() == 0
        assert (during, (screen.is_alternate, screen.is_cursor_shown)) == ((True, False), (False, True))

    await on_terminal(tmp_path, drive)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_leaves_the_terminal_as_it_was(tmp_path: Path, number: signal.Signals) -> None:
    def drive(session: Session) -> None:
        session.wait(lambda screen: "default/job" in screen.text)
        session.process.send_signal(number)
        assert session.end() == 0
        assert not session.screen.is_alternate and session.screen.is_cursor_shown

    await on_terminal(tmp_path, drive)


async def test_keys_and_sizes(tmp_path: Path) -> None:
    def drive(session: Session) -> None:
        session.wait(lambda screen: "every 1 s" in screen.text and "default/job" in screen.text)
        session.send("m")
        session.wait(lambda screen: "MEMORY▼" in screen.text)
        session.send("/job")
        session.wait(lambda screen: "filter: job_" in screen.text)
        session.send("\r")
        session.wait(lambda screen: "filter 'job'" in screen.text)
        session.send(" ")
        session.wait(lambda screen: "HELD" in screen.text)
        session.resize(60, 10)
        screen = session.wait(lambda screen: "default/job" in screen.text and "HELD" in screen.text)
        assert len(screen.text.split("\n")) == 10
        session.send("\x1b")
        session.wait(lambda screen: "filter 'job'" not in screen.text)
        session.send("q")
        assert session.end() == 0

    await on_terminal(tmp_path, drive)


async def test_a_daemon_that_is_gone_is_said_and_the_last_picture_stays(tmp_path: Path) -> None:
    def drive(session: Session) -> None:
        session.wait(lambda screen: "default/job" in screen.text)
        os.rename(tmp_path / "i.sock", tmp_path / "gone.sock")
        screen = session.wait(lambda screen: "no socket at" in screen.text)
        assert "default/job" in screen.text
        session.send("q")
        assert session.end() == 0

    await on_terminal(tmp_path, drive)


async def test_without_colours(tmp_path: Path) -> None:
    def drive(session: Session) -> None:
        screen = session.wait(lambda screen: "default/job" in screen.text)
        assert {style.color for line in screen.cells for _, style in line} == {0}
        session.send("q")
        session.end()

    await on_terminal(tmp_path, drive, NO_COLOR="1")


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"TERM": ""}])
async def test_a_terminal_that_knows_no_sequences_gets_one_picture(tmp_path: Path, environment: dict[str, str]) -> None:
    def drive(session: Session) -> None:
        assert session.end() == 0
        assert "default/job" in session.screen.text and not session.screen.is_alternate

    await on_terminal(tmp_path, drive, **environment)


async def test_a_pipe_gets_one_picture_without_sequences(tmp_path: Path) -> None:
    async with inspecting(tmp_path / "i.sock", full_scene(tmp_path)) as path:
        command = [sys.executable, "-m", "koordctl", "top", "--socket", path]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, timeout=60, check=True)
    assert b"default/job" in done.stdout and b"\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("values", "width", "full", "bars"),
    [
        ((), 5, 0, ""),
        ((0.0, 0.0), 5, 0, "▁▁"),
        ((0.0, 7.0), 5, 0, "▁█"),
        ((1, 2, 3, 4), 2, 0, "▆█"),
        ((-1.0, 1.0), 5, 0, "▁█"),
        ((1.0, 2.0), 5, 4, "▃▅"),
        ((9.0,), 5, 4, "█"),
        ((1.0,), 0, 0, ""),
    ],
)
def test_sparklines(values: tuple[float, ...], width: int, full: float, bars: str) -> None:
    assert sparkline(values, width, full) == bars


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        ("cores", 1.23456, "1.23"),
        ("cores", 2.0, "2"),
        ("bytes", 3.5 * (1 << 30), "3.5Gi"),
        ("bytes/s", 2048.0, "2.0Ki/s"),
        ("bytes", 12.0, "12"),
        ("percent", 12.34, "12.3%"),
    ],
)
def test_amounts(unit: str, value: float, text: str) -> None:
    assert amount(unit, value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.42, "0.4 s"), (12.4, "12 s"), (300, "5 min"), (9000, "2.5 h"), (400_000, "5 d")],
)
def test_ages(seconds: float, text: str) -> None:
    assert age(seconds) == text
