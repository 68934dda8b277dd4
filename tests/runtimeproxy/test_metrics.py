from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields

import pytest
from prometheus_client.parser import text_string_to_metric_families

from koord.service.metrics import LATENCY_BOUNDS_S, Family, Histogram, families, render, take
from runtimeproxy.metrics import CAP, OTHER, PREFIX, Metrics
from runtimeproxy.relay.policy import histogram_of

CREATE = "/runtime.v1.RuntimeService/CreateContainer"
FAMILIES = families(Metrics)


def figures() -> Metrics:
    return Metrics(bypass=lambda: True, backend_up=lambda: False, hook_servers=lambda: 2, log_lines_dropped=lambda: 6)


def samples(of: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(render(PREFIX, take(of)).decode())
        for sample in family.samples
    }


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_the_table(family: Family) -> None:
    assert re.fullmatch(r"[a-z_]+", family.name)
    assert not family.name.endswith("_total")  # the exposition adds it
    assert family.help.endswith(".")


def test_every_field_is_a_metric() -> None:
    assert [family.name for family in FAMILIES] == [field.name for field in fields(Metrics)]


def test_what_is_counted_is_shown() -> None:
    seen = figures()
    seen.calls["/runtime.v1.RuntimeService/Version", 0] += 3
    seen.fail_open["hook"] += 1
    seen.bytes.to_client = 7
    histogram_of(CREATE, seen.call_duration_seconds).observe(0.5)
    histogram_of(CREATE, seen.hold_duration_seconds).observe(0.25)
    seen.edit("CreateContainer", "cpu_shares")
    seen.hook_call("qosd.json", "PreCreateContainer", "ok", 0.002)
    seen.hook_failure("qosd.json", "PreCreateContainer", "ignored")
    seen.cached_pods, seen.cached_containers = 4, 5
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
    hooks = Metrics()
    for number in range(2 * CAP):
        hooks.edit("CreateContainer", f"field-{number}")
        hooks.hook_call(f"server-{number}", "PreCreateContainer", "ok", 0.1)
    assert len(hooks.edits) == len(hooks.hook_duration_seconds) == CAP + 1
    assert hooks.edits[OTHER, OTHER] == CAP


def test_only_methods_of_cri_have_histograms_of_their_own() -> None:
    times = Metrics().call_duration_seconds
    for number in range(10_000):
        histogram_of(f"/runtime.v1.RuntimeService/Method{number}", times).observe(1)
        histogram_of(f"/any.Service/{number}", times).observe(1)
    assert len(times) <= 130
    assert sum(times["other"].counts) >= 10_000


def test_what_was_taken_stays_as_it_was() -> None:
    seen = figures()
    histogram_of(CREATE, seen.call_duration_seconds).observe(1)
    seen.edited_requests = 1
    taken = take(seen)
    before = render(PREFIX, taken)
    histogram_of(CREATE, seen.call_duration_seconds).observe(1)
    seen.edited_requests = 2
    seen.calls[CREATE, 0] += 1
    assert render(PREFIX, taken) == before


def test_counting_does_not_import_prometheus() -> None:
    program = "import sys, runtimeproxy.metrics; sys.exit('prometheus_client' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
