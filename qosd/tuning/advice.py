"""Advice to the owner of a container, by its history: one rule for each way in which a limit or a request hurts it.

    killed          a process was killed for want of memory
    throttled       in 10 % of the CFS periods, until 5 %: by its own quota, whatever others do
    queued          1.2 times as many runnable threads as CPUs, until 1.05, while it fills its CPUs to 85 %
    full            its memory without page cache is 95 % of the limit, until 90 %: the kernel takes cache back
    slowed          allocations are throttled at memory.high once a second, until once in ten seconds
    cpu request,    it uses twice what it requests, until 1.5 times
    memory request

All but the first go by the mean over a minute, within the five minutes that are kept. A container that is throttled is
not called queued: its threads wait for quota. Pure. Invariant: the advised amount is more than the present one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from qosd.tuning.history import ContainerHistory, PodHistory
from qosd.tuning.series import Hysteresis, Series, is_high, mean, per_sample, percentile, span_s, total

THROTTLED, QUEUED = Hysteresis(0.10, 0.05), Hysteresis(1.2, 1.05)
FULL, SLOWED, REQUESTS = Hysteresis(0.95, 0.90), Hysteresis(1.0, 0.1), Hysteresis(2.0, 1.5)
_FILLED = 0.85
_LEAST_CORES, _LEAST_BYTES = 0.05, 32 << 20
"""A smaller request counts as this: a container that uses less than twice as much needs no advice."""
_MARGIN, _ROOM, _MORE = 1.1, 1.25, 1.5
_PEAK = 0.95
_MI = 1 << 20
_IN_PLACE = "kubelet can do that in place (Kubernetes 1.33)"
_LIMIT, _REQUEST = "limit", "request"


class Advice(NamedTuple):
    """Advice on ``container``, "" = on the pod itself. ``finding``: the harm, with figures; ``remedy``: the setting,
    and how it comes about."""

    container: str
    topic: str
    finding: str
    remedy: str


_Sentences = tuple[str, str]
"""Finding and remedy."""


def advise(pod: PodHistory) -> tuple[Advice, ...]:
    """Returns the advice on each of the pod's containers, the worst first."""
    found = [
        Advice(history.name, topic, *said)
        for history in pod.containers
        for topic, rule in RULES.items()
        if (said := rule(history)) is not None
    ]
    return (*_of_gone(pod), *found)


def _of_gone(pod: PodHistory) -> tuple[Advice, ...]:
    """Returns advice on containers that were killed and made anew: only the pod's own cgroup still counts them."""
    kills = _kills(pod.oom_kills_per_s) - sum(_kills(history.oom_kills_per_s) for history in pod.containers)
    if kills <= 0:
        return ()
    whose = f"{_count(kills, 'process')} of containers that were made anew since"
    finding = f"the kernel killed {whose} for want of memory in {_last(pod.oom_kills_per_s)}"
    return (Advice("", "killed", finding, "raise the memory limit of the container that restarts"),)


def _killed(history: ContainerHistory) -> _Sentences | None:
    kills = _kills(history.oom_kills_per_s)
    if not kills:
        return None
    processes, limit_bytes = _count(kills, "process"), history.memory_limit_bytes
    finding = f"the kernel killed {processes} of it for want of memory in {_last(history.oom_kills_per_s)}"
    if not limit_bytes:
        return finding, "it has no limit of its own: see to that of its pod, or to the node"
    enough_bytes = _bytes(_peak_bytes(history) * _MORE)
    return f"{finding}; limit {_memory(limit_bytes)}", _set_memory(history, enough_bytes, _LIMIT)


def _throttled(history: ContainerHistory) -> _Sentences | None:
    limit_milli = history.cpu_limit_milli
    if not limit_milli or not is_high(history.throttled_ratio, THROTTLED):
        return None
    percent = f"{100 * mean(history.throttled_ratio):.0f} %"
    finding = f"limit {_cpu(limit_milli)}: throttled {percent} of the periods of {_last(history.throttled_ratio)}"
    both = per_sample(history.usage_cores, history.throttled_us_per_s)
    enough_milli = _milli(percentile([(at_ns, cores + us / 1e6) for at_ns, cores, us in both], _PEAK) * _MARGIN)
    if enough_milli > limit_milli:
        return f"{finding}; {_cpu(enough_milli)} would have sufficed", _set_cpu(history, enough_milli, _LIMIT)
    finding = f"{finding}, although it used {_cpu(round(mean(history.usage_cores) * 1000))} on average"
    if history.may_burst:
        return finding, _set_cpu(history, _milli(limit_milli / 1000 * _MORE), _LIMIT)
    return finding, "its threads run at once for moments: cpuBurstStrategy with policy auto lends it quota for them"


def _queued(history: ContainerHistory) -> _Sentences | None:
    cpus = history.cpus
    if not cpus or is_high(history.throttled_ratio, THROTTLED):
        return None
    both = list(per_sample(history.usage_cores, history.run_queue_us_per_s))
    runnable = [(at_ns, cores + us / 1e6) for at_ns, cores, us in both]
    is_filled = [cores >= _FILLED * cpus for _, cores, _ in both]
    crowding = [(at_ns, threads / cpus * filled) for (at_ns, threads), filled in zip(runnable, is_filled, strict=True)]
    if not is_high(crowding, QUEUED):
        return None
    finding = f"{mean(runnable):.1f} threads wanted to run on its {_count(cpus, 'CPU')} in {_last(runnable)}"
    how = history.cpu_fixed or "it has as many as the pool of its class"
    return finding, f"run fewer threads, or give it {_count(math.ceil(mean(runnable)), 'CPU')}: {how}"


def _full(history: ContainerHistory) -> _Sentences | None:
    limit_bytes = history.memory_limit_bytes
    if not limit_bytes or _kills(history.oom_kills_per_s):
        return None
    if not is_high([(at_ns, value / limit_bytes) for at_ns, value in history.memory_usage_bytes], FULL):
        return None
    used = f"{_memory(mean(history.memory_usage_bytes))} without page cache of the limit {_memory(limit_bytes)}"
    finding = f"{used} in {_last(history.memory_usage_bytes)}: at the limit it is killed"
    return finding, _set_memory(history, _bytes(_peak_bytes(history) * _ROOM), _LIMIT)


def _slowed(history: ContainerHistory) -> _Sentences | None:
    if not is_high(history.memory_high_per_s, SLOWED):
        return None
    times = f"{mean(history.memory_high_per_s):.0f} times a second"
    finding = f"its allocations were throttled at memory.high {times} in {_last(history.memory_high_per_s)}"
    remedy = "raise throttlingPercent of its memoryQOS"
    if history.memory_limit_bytes:
        remedy += f", or {_set_memory(history, _bytes(_peak_bytes(history) * _ROOM), _LIMIT)}"
    return finding, remedy


def _cpu_request(history: ContainerHistory) -> _Sentences | None:
    request_milli = history.cpu_request_milli
    if request_milli is None or history.is_guaranteed:
        return None
    least_cores = max(request_milli / 1000, _LEAST_CORES)
    if not is_high([(at_ns, cores / least_cores) for at_ns, cores in history.usage_cores], REQUESTS):
        return None
    enough_milli = _within(_milli(percentile(history.usage_cores, _PEAK)), history.cpu_limit_milli)
    if enough_milli <= request_milli:
        return None
    used = f"used {_cpu(round(mean(history.usage_cores) * 1000))} in {_last(history.usage_cores)}"
    finding = f"requests {_cpu(request_milli)}, {used}: when CPU is short it goes by requests"
    return finding, _set_cpu(history, enough_milli, _REQUEST)


def _memory_request(history: ContainerHistory) -> _Sentences | None:
    request_bytes = history.memory_request_bytes
    if request_bytes is None or history.is_guaranteed:
        return None
    least_bytes = max(request_bytes, _LEAST_BYTES)
    if not is_high([(at_ns, value / least_bytes) for at_ns, value in history.working_set_bytes], REQUESTS):
        return None
    enough_bytes = _within(_bytes(percentile(history.working_set_bytes, _PEAK)), history.memory_limit_bytes)
    if enough_bytes <= request_bytes:
        return None
    used = f"working set {_memory(mean(history.working_set_bytes))} in {_last(history.working_set_bytes)}"
    finding = f"requests {_memory(request_bytes)} of memory, {used}: who exceeds requests is evicted first"
    return finding, _set_memory(history, enough_bytes, _REQUEST)


RULES: Mapping[str, Callable[[ContainerHistory], _Sentences | None]] = MappingProxyType(
    {
        "killed": _killed,
        "throttled": _throttled,
        "queued": _queued,
        "full": _full,
        "slowed": _slowed,
        "cpu request": _cpu_request,
        "memory request": _memory_request,
    }
)
"""By topic, in the order in which they are told."""


def _set_cpu(history: ContainerHistory, milli: int, what: str) -> str:
    left_milli = _lacking(history, what, milli - (history.cpu_request_milli or 0), history.left_milli)
    return _set(history, what, _cpu(milli), history.cpu_fixed, None if left_milli is None else _cpu(left_milli))


def _set_memory(history: ContainerHistory, amount_bytes: int, what: str) -> str:
    left_bytes = _lacking(history, what, amount_bytes - (history.memory_request_bytes or 0), history.left_bytes)
    left = None if left_bytes is None else _memory(left_bytes)
    return _set(history, what, f"{_memory(amount_bytes)} of memory", history.memory_fixed, left)


def _lacking(history: ContainerHistory, what: str, more: int, left: int | None) -> int | None:
    """Returns what the node has left to request, if that is less than it takes; else None."""
    raises_request = what == _REQUEST or history.is_guaranteed
    return max(0, left) if left is not None and raises_request and more > left else None


def _set(history: ContainerHistory, what: str, amount: str, fixed: str, left: str | None) -> str:
    """Returns the sentence of a remedy. ``left``: what the node has left, if that is too little; None = there is
    enough.
    """
    both = f"{_LIMIT} and {_REQUEST}" if history.is_guaranteed else what
    how = _IN_PLACE if left is None else f"the node has {left} left to request, so kubelet would put it off"
    return f"set {both} to {amount}: {fixed or how}"


def _kills(series: Series) -> int:
    return round(total(series))


def _peak_bytes(history: ContainerHistory) -> float:
    """Returns the largest working set; a container that is killed or throttled at a bound wanted more than that."""
    return max(percentile(history.working_set_bytes, 1.0), float(history.memory_limit_bytes))


def _within(amount: int, limit: int) -> int:
    """Returns ``amount``, at most ``limit``; 0 = no limit."""
    return min(amount, limit) if limit else amount


def _last(series: Series) -> str:
    seconds = span_s(series)
    return f"the last {seconds:.0f} s" if seconds < 100 else f"the last {seconds / 60:.0f} min"


def _milli(cores: float) -> int:
    """Returns milli-CPUs, rounded up to 50m, beyond one CPU to 100m."""
    step = 50 if cores <= 1 else 100
    return math.ceil(round(cores * 1000, 3) / step) * step


def _bytes(amount: float) -> int:
    """Returns bytes, rounded up to 16Mi, beyond 1Gi to 64Mi."""
    step = 16 * _MI if amount <= 1024 * _MI else 64 * _MI
    return math.ceil(amount / step) * step


def _cpu(milli: int) -> str:
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


def _memory(amount: float) -> str:
    return f"{amount / _MI:.0f}Mi"


def _count(number: int, noun: str) -> str:
    plural = "es" if noun.endswith("s") else "s"
    return f"{number} {noun}{'' if number == 1 else plural}"
