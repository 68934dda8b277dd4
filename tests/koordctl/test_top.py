"""``koordctl top``: the picture as values, the screen driven without a terminal, and what is said without textual."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import click
import pytest

from koord.pb.koord import inspect_pb2 as inspect
from koordctl.exits import Unreachable
from koordctl.fields import Layout
from koordctl.values import age, amount, sparkline
from koordctl.views import top
from qosd.sense import table

POD = "/kubepods/podweb"


def metric(name: str, unit: str, *samples: inspect.Sample) -> inspect.Metric:
    return inspect.Metric(name=name, unit=unit, samples=samples)


def points(*values: float) -> list[inspect.Point]:
    return [inspect.Point(value=value) for value in values]


METRICS = [
    metric("node_cpu_usage_cores", "cores", inspect.Sample(value=1.5, history=points(1.0, 1.5))),
    metric("node_ignored", "cores", inspect.Sample(value=1)),
    metric(
        "pod_cpu_usage_cores",
        "cores",
        inspect.Sample(subject="/kubepods/podjob", label="default/job", value=0.5),
        inspect.Sample(subject=POD, label="default/web", value=2.0, history=points(1, 2)),
    ),
    metric("pod_memory_usage_bytes", "bytes", inspect.Sample(subject=POD, label="default/web", value=3 << 20)),
]


def ask(method: str, request: inspect.MetricsRequest, answer: Any) -> inspect.MetricsResponse:
    assert method == "Metrics"
    chosen = [each for each in METRICS if each.name.startswith(request.metric)]
    return inspect.MetricsResponse(observed_unix_ns=1, metrics=chosen)


def test_the_picture() -> None:
    picture = top.read(ask)
    assert picture.node == (top.NodeLine("cpu_usage_cores", "cores", 1.5, (1.0, 1.5)),)
    assert picture.pods == (
        top.PodLine("default/web", {"cpu_usage_cores": 2.0, "memory_usage_bytes": 3 << 20}, (1.0, 2.0)),
        top.PodLine("default/job", {"cpu_usage_cores": 0.5}),
    )
    assert Layout(top.PODS).cells(picture.pods) == [
        ["default/web", "2", "-", "3.0Mi", "-", "-", "▅█"],
        ["default/job", "0.5", "-", "-", "-", "-", ""],
    ]


def test_what_is_shown_is_measured() -> None:
    names = {metric.name for metric in table.METRICS}
    assert {*top.NODE_METRICS} <= names
    assert {f"pod_{field.name}" for field in top.PODS.fields} - names == {"pod_pod", "pod_cpu_history"}


def test_no_textual() -> None:
    """Its absence is a sentence that says what to install."""
    hidden = (
        "import sys; sys.modules['textual'] = None\n"
        "from koordctl.__main__ import main; sys.argv[1:] = ['top', '--socket', '/none']; main()"
    )
    done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, "pip install 'koord[tui]'" in done.stderr) == (4, True), done.stderr


async def test_the_screen() -> None:
    pytest.importorskip("textual")
    from textual.widgets import DataTable, Static  # noqa: PLC0415

    from koordctl.screen import Screen  # noqa: PLC0415

    broken = False

    def asking(method: str, request: Any, answer: Any) -> Any:
        if broken:
            raise Unreachable("nobody listens")
        return ask(method, request, answer)

    async def shown(screen: Screen, pilot: Any, selector: str, text: str) -> bool:
        for _ in range(100):
            await pilot.pause(0.02)
            if text in str(screen.query_one(selector, Static).render()):
                return True
        return False

    fields = tuple(top.PODS.field(name) for name in ("pod", "memory_usage_bytes", "cpu_history"))
    screen = Screen(asking, 0.2, Layout(top.PODS, fields=fields))
    async with screen.run_test() as pilot:
        assert await shown(screen, pilot, "#node", "cpu_usage_cores         1.5  ▆█")
        table = screen.query_one(DataTable)
        assert table.get_row_at(0) == ["default/web", "3.0Mi", "▅█"]
        broken = True
        assert await shown(screen, pilot, "#said", "nobody listens")
        assert table.row_count == 2  # the last picture stays
        await pilot.press("space")
        assert await shown(screen, pilot, "#said", "held")
        await pilot.press("q")


def test_an_absent_daemon_is_said_before_the_screen_is_taken() -> None:
    def absent(method: str, request: Any, answer: Any) -> Any:
        raise Unreachable("no socket")

    with pytest.raises(click.ClickException, match="no socket"):
        top.read(absent)


@pytest.mark.parametrize(
    ("values", "width", "bars"),
    [
        ((), 5, ""),
        ((0.0, 0.0), 5, "▁▁"),
        ((0.0, 7.0), 5, "▁█"),
        ((1, 2, 3, 4), 2, "▆█"),
        ((-1.0, 1.0), 5, "▁█"),
    ],
)
def test_sparklines(values: tuple[float, ...], width: int, bars: str) -> None:
    assert sparkline(values, width) == bars


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
