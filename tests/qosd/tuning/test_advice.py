"""Advice: what is said of which history, with which figures; and that it does not come and go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qosd.tuning.advice import FULL, RULES, THROTTLED, Advice, advise
from qosd.tuning.history import ContainerHistory, PodHistory
from qosd.tuning.series import Hysteresis, Series, is_high, total
from tests.fakes.clock import S

MI = 1 << 20
IN_PLACE = "kubelet can do that in place (Kubernetes 1.33)"


def steady(value: float, seconds: int = 300) -> Series:
    return [(at * S, value) for at in range(seconds + 1)]


def steps(*parts: tuple[int, float]) -> Series:
    """(seconds, value) one after the other."""
    values = [value for seconds, value in parts for _ in range(seconds)]
    return [(at * S, value) for at, value in enumerate(values)]


def history(**figures: Any) -> ContainerHistory:
    """A container of two CPUs that does nothing wrong, but for ``figures``; a number stands for five minutes of it."""
    names = ("usage_cores", "throttled_ratio", "throttled_us_per_s", "run_queue_us_per_s", "working_set_bytes",
             "memory_usage_bytes", "memory_high_per_s", "oom_kills_per_s")  # fmt: skip
    made = {name: steady(value) if name in names and isinstance(value, int | float) else value
            for name, value in figures.items()}  # fmt: skip
    quiet = {name: steady(0) for name in names}
    members: dict[str, Any] = {"name": "web", "cpus": 2, **quiet, **made}
    return ContainerHistory(**members)


def said(*containers: ContainerHistory, **of_pod: Any) -> list[tuple[str, str, str]]:
    return [(each.topic, each.finding, each.remedy) for each in advise(PodHistory(containers, **of_pod))]


THROTTLING = {"cpu_limit_milli": 500, "throttled_ratio": 0.38, "usage_cores": 0.5}


@pytest.mark.parametrize(
    ("figures", "topic", "finding", "remedy"),
    [
        (
            THROTTLING | {"throttled_us_per_s": 300_000},
            "throttled",
            "limit 500m: throttled 38 % of the periods of the last 5 min; 900m would have sufficed",
            f"set limit to 900m: {IN_PLACE}",
        ),
        (
            THROTTLING | {"throttled_us_per_s": 2_400_000, "is_guaranteed": True},
            "throttled",
            "limit 500m: throttled 38 % of the periods of the last 5 min; 3200m would have sufficed",
            f"set limit and request to 3200m: {IN_PLACE}",
        ),
        (
            THROTTLING
            | {"throttled_us_per_s": 300_000, "is_guaranteed": True, "cpu_request_milli": 500, "left_milli": 350},
            "throttled",
            "limit 500m: throttled 38 % of the periods of the last 5 min; 900m would have sufficed",
            "set limit and request to 900m: the node has 350m left to request, so kubelet would put it off",
        ),
        (
            THROTTLING | {"throttled_us_per_s": 300_000, "left_milli": 0},  # a limit alone takes nothing of the node
            "throttled",
            "limit 500m: throttled 38 % of the periods of the last 5 min; 900m would have sufficed",
            f"set limit to 900m: {IN_PLACE}",
        ),
        (
            THROTTLING | {"throttled_us_per_s": 300_000, "cpu_fixed": "it takes a new pod"},
            "throttled",
            "limit 500m: throttled 38 % of the periods of the last 5 min; 900m would have sufficed",
            "set limit to 900m: it takes a new pod",
        ),
        (
            THROTTLING | {"usage_cores": 0.2, "throttled_us_per_s": 50_000},
            "throttled",
            "limit 500m: throttled 38 % of the periods of the last 5 min, although it used 200m on average",
            "its threads run at once for moments: cpuBurstStrategy with policy auto lends it quota for them",
        ),
        (
            THROTTLING | {"usage_cores": 0.2, "throttled_us_per_s": 50_000, "may_burst": True},
            "throttled",
            "limit 500m: throttled 38 % of the periods of the last 5 min, although it used 200m on average",
            f"set limit to 750m: {IN_PLACE}",
        ),
        (
            {"usage_cores": 1.95, "run_queue_us_per_s": 1_450_000},
            "queued",
            "3.4 threads wanted to run on its 2 CPUs in the last 5 min",
            "run fewer threads, or give it 4 CPUs: it has as many as the pool of its class",
        ),
        (
            {"usage_cores": 1.95, "run_queue_us_per_s": 1_450_000, "cpu_fixed": "it takes a new pod"},
            "queued",
            "3.4 threads wanted to run on its 2 CPUs in the last 5 min",
            "run fewer threads, or give it 4 CPUs: it takes a new pod",
        ),
        (
            {"oom_kills_per_s": steps((200, 0), (1, 1), (1, 1), (99, 0)), "memory_limit_bytes": 256 * MI,
             "working_set_bytes": 200.0 * MI},
            "killed",
            "the kernel killed 2 processes of it for want of memory in the last 5 min; limit 256Mi",
            f"set limit to 384Mi of memory: {IN_PLACE}",
        ),
        (
            {"oom_kills_per_s": steps((50, 0), (1, 1), (39, 0))},
            "killed",
            "the kernel killed 1 process of it for want of memory in the last 89 s",
            "it has no limit of its own: see to that of its pod, or to the node",
        ),
        (
            {"memory_limit_bytes": 256 * MI, "memory_usage_bytes": 246.0 * MI},
            "full",
            "246Mi without page cache of the limit 256Mi in the last 5 min: at the limit it is killed",
            f"set limit to 320Mi of memory: {IN_PLACE}",
        ),
        (
            {"memory_limit_bytes": 2048 * MI, "memory_usage_bytes": 2000.0 * MI, "memory_fixed": "it takes a new pod"},
            "full",
            "2000Mi without page cache of the limit 2048Mi in the last 5 min: at the limit it is killed",
            "set limit to 2560Mi of memory: it takes a new pod",
        ),
        (
            {"memory_high_per_s": 12, "memory_limit_bytes": 256 * MI, "working_set_bytes": 100.0 * MI},
            "slowed",
            "its allocations were throttled at memory.high 12 times a second in the last 5 min",
            f"raise throttlingPercent of its memoryQOS, or set limit to 320Mi of memory: {IN_PLACE}",
        ),
        (
            {"memory_high_per_s": 12},
            "slowed",
            "its allocations were throttled at memory.high 12 times a second in the last 5 min",
            "raise throttlingPercent of its memoryQOS",
        ),
        (
            {"cpu_request_milli": 100, "usage_cores": 0.42},
            "cpu request",
            "requests 100m, used 420m in the last 5 min: when CPU is short it goes by requests",
            f"set request to 450m: {IN_PLACE}",
        ),
        (
            {"cpu_request_milli": 100, "usage_cores": 0.42, "cpu_limit_milli": 430, "left_milli": 100},
            "cpu request",
            "requests 100m, used 420m in the last 5 min: when CPU is short it goes by requests",
            "set request to 430m: the node has 100m left to request, so kubelet would put it off",
        ),
        (
            {"cpu_request_milli": 0, "usage_cores": 1.42, "cpu_fixed": "it takes a new pod"},
            "cpu request",
            "requests 0, used 1420m in the last 5 min: when CPU is short it goes by requests",
            "set request to 1500m: it takes a new pod",
        ),
        (
            {"memory_request_bytes": 64 * MI, "working_set_bytes": 300.0 * MI},
            "memory request",
            "requests 64Mi of memory, working set 300Mi in the last 5 min: who exceeds requests is evicted first",
            f"set request to 304Mi of memory: {IN_PLACE}",
        ),
    ],
)  # fmt: skip
def test_what_is_said(figures: dict[str, Any], topic: str, finding: str, remedy: str) -> None:
    assert said(history(**figures)) == [(topic, finding, remedy)]


@pytest.mark.parametrize(
    "figures",
    [
        {},
        {"cpu_limit_milli": 500, "throttled_ratio": 0.09},
        {"throttled_ratio": 0.5},  # by its pod's quota: it has none
        {"cpu_limit_milli": 500, "throttled_ratio": steady(0.5, seconds=59)},  # not for long
        {"cpu_limit_milli": 500, "throttled_ratio": steps((290, 0), (10, 0.5))},
        {"usage_cores": 1.95, "run_queue_us_per_s": 300_000},
        {"usage_cores": 1.0, "run_queue_us_per_s": 3_000_000},  # it waits for others
        {"usage_cores": 1.95, "run_queue_us_per_s": 1_450_000, "cpus": 0},
        {"memory_limit_bytes": 256 * MI, "memory_usage_bytes": 240.0 * MI},
        {
            "memory_limit_bytes": 256 * MI,
            "memory_usage_bytes": 90.0 * MI,
            "working_set_bytes": 255.0 * MI,
        },  # a database
        {"memory_usage_bytes": 1e12},
        {"working_set_bytes": 1e12},
        {"memory_high_per_s": 0.5},
        {"cpu_request_milli": 100, "usage_cores": 0.19},
        {"cpu_request_milli": 10, "usage_cores": 0.09},  # next to nothing
        {"usage_cores": 0.5},  # nobody tells what it requests
        {"cpu_request_milli": 500, "cpu_limit_milli": 500, "usage_cores": 1.2, "is_guaranteed": True},
        {"memory_request_bytes": 64 * MI, "working_set_bytes": 100.0 * MI},
        {"memory_request_bytes": 0, "working_set_bytes": 40.0 * MI},
    ],
)
def test_what_is_nobodys_business(figures: dict[str, Any]) -> None:
    assert said(history(**figures)) == []


def test_a_container_without_a_sample_has_no_advice() -> None:
    assert advise(PodHistory((ContainerHistory(name="web", cpu_limit_milli=500, memory_limit_bytes=MI),))) == ()


def test_who_is_throttled_is_not_called_queued() -> None:
    figures = THROTTLING | {"usage_cores": 1.95, "throttled_us_per_s": 1, "run_queue_us_per_s": 3_000_000}
    assert [topic for topic, _, _ in said(history(**figures, may_burst=True))] == ["throttled"]


def test_who_is_killed_is_not_called_full_as_well() -> None:
    figures = {"memory_limit_bytes": 256 * MI, "memory_usage_bytes": 250.0 * MI}
    killed = history(**figures, oom_kills_per_s=steps((100, 0), (1, 1), (50, 0)))
    assert [topic for topic, _, _ in said(killed)] == ["killed"]


def test_containers_that_were_made_anew_are_told_of_their_pod() -> None:
    kills = steps((100, 0), (3, 1), (197, 0))
    one = history(oom_kills_per_s=steps((290, 0), (1, 1), (9, 0)), memory_limit_bytes=256 * MI)
    found = advise(PodHistory((one,), kills))
    assert [(each.container, each.topic) for each in found] == [("", "killed"), ("web", "killed")]
    assert found[0].finding.startswith("the kernel killed 2 processes of containers that were made anew since")
    assert advise(PodHistory((one,), steps((300, 0)))) == found[1:]


def test_each_container_has_its_own_and_the_worst_comes_first() -> None:
    small = history(cpu_request_milli=100, usage_cores=0.42, memory_limit_bytes=256 * MI, memory_usage_bytes=250.0 * MI)
    found = advise(PodHistory((small, history(name="b", **THROTTLING, throttled_us_per_s=300_000))))
    assert [(each.container, each.topic) for each in found] == [
        ("web", "full"),
        ("web", "cpu request"),
        ("b", "throttled"),
    ]


def answers(series: Series, band: Hysteresis, kept_s: int = 300) -> list[bool]:
    """What is answered second by second to whoever sees what is kept then."""
    return [is_high(series[max(0, now - kept_s) : now + 1], band) for now in range(len(series))]


def changes(said: Sequence[bool]) -> int:
    return sum(before is not after for before, after in pairwise(said))


@pytest.mark.parametrize(
    ("series", "band", "most"),
    [
        (steps(*[(1, 0.06 + 0.03 * (second % 3)) for second in range(900)]), THROTTLED, 0),  # 6, 9, 12, 6 … %
        (steps((120, 0.0), (120, 0.3), (660, 0.07)), THROTTLED, 2),  # between the marks afterwards
        (steps((120, 0.0), (120, 0.3), (660, 0.0)), THROTTLED, 2),
        (steps(*[(20, 0.94 + 0.02 * (part % 2)) for part in range(45)]), FULL, 2),
        (steps(*[(30, 0.2 * (part % 2)) for part in range(30)]), THROTTLED, 1),  # on and off each half minute: 10 %
    ],
)
def test_it_does_not_come_and_go(series: Series, band: Hysteresis, most: int) -> None:
    assert changes(answers(series, band)) <= most


values = st.lists(st.floats(0, 1), min_size=1, max_size=400)


@given(values)
def test_it_is_high_only_after_a_minute_and_only_if_it_ever_was(numbers: list[float]) -> None:
    series = [(second * S, value) for second, value in enumerate(numbers)]
    if len(numbers) <= 60 or max(numbers) < THROTTLED.on:
        assert not is_high(series, THROTTLED)
    if len(numbers) > 60 and min(numbers) >= THROTTLED.on:
        assert is_high(series, THROTTLED)
    if len(numbers) > 60 and max(numbers[-61:]) < THROTTLED.off:
        assert not is_high(series, THROTTLED)


@given(values, st.floats(0.05, 0.1, exclude_max=True))
def test_between_the_marks_the_answer_stays(numbers: list[float], level: float) -> None:
    series = [(second * S, value) for second, value in enumerate(numbers)]
    more = [((len(series) + second) * S, level) for second in range(200)]
    settled = answers_at(is_high, [*series, *more], len(series) + 61)
    assert changes(settled) == 0


def answers_at(judge: Callable[[Series, Hysteresis], bool], series: Series, begin: int) -> list[bool]:
    return [judge(series[:end], THROTTLED) for end in range(begin, len(series) + 1)]


@given(st.lists(st.integers(0, 3), min_size=2, max_size=50))
def test_a_rate_comes_to_what_was_counted(counts: list[int]) -> None:
    """Ten seconds apart."""
    series = [(place * 10 * S, count / 10) for place, count in enumerate(counts)]
    assert round(total(series), 6) == sum(counts[1:])


amounts = st.floats(0, 8)


@given(st.sampled_from(sorted(RULES)), amounts, amounts, st.integers(0, 4000), st.booleans())
def test_what_is_recommended_is_more_than_there_is(
    topic: str, usage: float, throttled: float, limit_milli: int, may_burst: bool
) -> None:
    past = history(
        cpu_limit_milli=limit_milli,
        usage_cores=usage,
        throttled_ratio=0.5,
        throttled_us_per_s=throttled * 1e6,
        may_burst=may_burst,
        memory_limit_bytes=int(usage * MI) + 1,
        memory_usage_bytes=usage * MI,
        working_set_bytes=usage * MI,
        cpu_request_milli=limit_milli // 4,
        memory_request_bytes=1,
    )
    for each in advise(PodHistory((replace(past, name=topic),))):
        amount = re_amount(each)
        if amount is not None and each.topic in ("throttled", "full"):
            assert amount > (limit_milli if each.topic == "throttled" else past.memory_limit_bytes)


def re_amount(advice: Advice) -> int | None:
    """The amount in ``set limit to …``, in milli-CPU or bytes."""
    words = advice.remedy.partition(" to ")[2].partition(":")[0].split()
    if not advice.remedy.startswith("set ") or not words:
        return None
    if "memory" in words:
        return int(words[0].removesuffix("Mi")) * MI
    return int(words[0].removesuffix("m")) if words[0].endswith("m") else int(words[0]) * 1000
