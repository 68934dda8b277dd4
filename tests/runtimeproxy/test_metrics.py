from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from typing import cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from koord.service.metrics import LATENCY_BOUNDS_S, Histogram, Kind, render, take
from runtimeproxy.hookcounters import CAP, OTHER, HookCounters
from runtimeproxy.looplag import LoopLag
from runtimeproxy.metrics import METRICS, PREFIX, Figures
from runtimeproxy.relay.counters import RelayCounters

CREATE = "/runtime.v1.RuntimeService/CreateContainer"
LOOP = cast(asyncio.AbstractEventLoop, None)  # that nothing is armed on


def figures() -> Figures:
    return Figures(
        RelayCounters(),
        LoopLag(LOOP, lambda: False),
        HookCounters(),
        bypass=lambda: True,
        backend_up=lambda: False,
        hook_servers=lambda: 2,
        log_lines_dropped=lambda: 6,
    )


def samples(of: Figures) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(render(PREFIX, take(METRICS, of)).decode())
        for sample in family.samples
    }


@pytest.mark.parametrize("declared", METRICS, ids=lambda declared: declared.name)
def test_the_table(declared: object) -> None:
    assert declared in METRICS
    entry = METRICS[METRICS.index(declared)]  # type: ignore[arg-type]
    assert re.fullmatch(r"[a-z_]+", entry.name)
    assert not entry.name.endswith("_total")  # the exposition adds it
    assert entry.help.endswith(".")


def test_names_are_unique() -> None:
    assert len({entry.name for entry in METRICS}) == len(METRICS)


def test_what_is_counted_is_shown() -> None:
    seen = figures()
    seen.relay.calls["/runtime.v1.RuntimeService/Version", 0] += 3
    seen.relay.fail_open["hook"] += 1
    seen.relay.bytes_to_client = 7
    seen.relay.latency_of(CREATE).observe(0.5)
    seen.relay.hold_of(CREATE).observe(0.25)
    seen.hooks.edit("CreateContainer", "cpu_shares")
    seen.hooks.hook_call("qosd.json", "PreCreateContainer", "ok", 0.002)
    seen.hooks.hook_policy("qosd.json", "PreCreateContainer", "ignored")
    seen.hooks.cache_size(4, 5)
    shown = samples(seen)
    assert shown[PREFIX + "calls_total", (("code", "0"), ("method", "/runtime.v1.RuntimeService/Version"))] == 3
    assert shown[PREFIX + "fail_open_total", (("reason", "hook"),)] == 1
    assert shown[PREFIX + "bytes_total", (("direction", "to_client"),)] == 7
    assert shown[PREFIX + "edits_total", (("field", "cpu_shares"), ("method", "CreateContainer"))] == 1
    method = (("method", CREATE),)
    assert shown[PREFIX + "call_duration_seconds_count", method] == 1
    assert shown[PREFIX + "hold_duration_seconds_sum", method] == 0.25
    assert shown[PREFIX + "loop_lag_seconds_count", ()] == 0
    assert shown[PREFIX + "loop_lag_longest_seconds", ()] == 0
    assert shown[PREFIX + "hook_servers", ()] == 2
    assert shown[PREFIX + "log_lines_dropped_total", ()] == 6
    assert (shown[PREFIX + "bypass", ()], shown[PREFIX + "backend_up", ()]) == (1, 0)
    assert (shown[PREFIX + "cached_pods", ()], shown[PREFIX + "cached_containers", ()]) == (4, 5)
    labels = (("server", "qosd.json"), ("stage", "PreCreateContainer"))
    assert shown[PREFIX + "hook_duration_seconds_count", labels] == 1
    assert shown[PREFIX + "hook_duration_seconds_sum", labels] == 0.002


@pytest.mark.parametrize(
    ("seconds", "index"),
    [(0.0, 0), (LATENCY_BOUNDS_S[0], 0), (LATENCY_BOUNDS_S[0] * 1.01, 1), (LATENCY_BOUNDS_S[-1], -2), (1e9, -1)],
)
def test_histogram_bounds_are_inclusive(seconds: float, index: int) -> None:
    histogram = Histogram()
    histogram.observe(seconds)
    assert histogram.counts[index] == 1
    assert histogram.cumulative()[-1] == ("+Inf", 1.0)


def test_label_values_are_bounded() -> None:
    hooks = HookCounters()
    for number in range(2 * CAP):
        hooks.edit("CreateContainer", f"field-{number}")
        hooks.hook_call(f"server-{number}", "PreCreateContainer", "ok", 0.1)
    assert len(hooks.edits) == len(hooks.latency) == CAP + 1
    assert hooks.edits[OTHER, OTHER] == CAP


def test_only_methods_of_cri_have_histograms_of_their_own() -> None:
    relay = RelayCounters()
    for number in range(10_000):
        relay.latency_of(f"/runtime.v1.RuntimeService/Method{number}").observe(1)
        relay.latency_of(f"/any.Service/{number}").observe(1)
    assert len(relay.latency) <= 130
    assert sum(relay.latency["other"].counts) >= 10_000


def test_what_was_taken_stays_as_it_was() -> None:
    seen = figures()
    seen.relay.latency_of(CREATE).observe(1)
    seen.relay.edited = 1
    taken = take(METRICS, seen)
    before = render(PREFIX, taken)
    seen.relay.latency_of(CREATE).observe(1)
    seen.relay.edited = 2
    seen.relay.calls[CREATE, 0] += 1
    assert render(PREFIX, taken) == before


def test_it_is_what_the_hooks_ask_for() -> None:
    hooks: HookCounters = HookCounters()
    hooks.hook_conflict("cpu_shares")
    hooks.hook_guard("key")
    hooks.post_dropped("s", "PostStopContainer")
    hooks.hook_file_errors(3)
    hooks.exempt("mark")
    assert {Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM} == {entry.kind for entry in METRICS}


def test_counting_does_not_import_prometheus() -> None:
    program = "import sys, runtimeproxy.metrics; sys.exit('prometheus_client' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
