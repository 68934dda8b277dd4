"""Policy of all connections of one relay: which streams are intercepted, and how much may be held.

Invariant: a client can make us keep only a bounded amount beyond its connection. A path becomes a route, and a label of
the metrics, only if it is short and there are not too many yet; all others share one label and pass. Each
path of CRI has a histogram of its own, up to a number of them; all others share one.
"""

from __future__ import annotations

from collections.abc import Callable

from koord.service.metrics import Histogram
from runtimeproxy.intercept import PASS, Interceptor, Treatment
from runtimeproxy.metrics import OTHER, Metrics
from runtimeproxy.relay.budget import Budget
from runtimeproxy.relay.hangups import Hangups
from runtimeproxy.relay.stream import Route

CREDIT_BATCH_BYTES = 16_384  # a quarter of HTTP/2's initial window: the client never runs dry waiting for us
MAX_UNACKNOWLEDGED = 1024  # SETTINGS of one end
MAX_PATH_BYTES = 256  # CRI's own are below 80
MAX_LABELS = 512
MAX_TIMED_METHODS = 128  # CRI has about 40 in each version
_CRI = ("/runtime.v1.", "/runtime.v1alpha2.")


class RelayPolicy:
    """Chooses routes; ``held_budget_bytes`` bounds the bytes in hold, of all connections together."""

    def __init__(self, interceptor: Interceptor, metrics: Metrics, held_budget_bytes: int) -> None:
        self.interceptor = interceptor
        self.metrics = metrics
        self.budget = Budget(held_budget_bytes)
        self.hangups = Hangups()
        self.bypass = False
        self.worked: Callable[[], None] = _nothing  # called when a stream ends, or one begins that is looked at
        self.other = Route("", "other", PASS, True, histogram_of("", metrics.call_duration_seconds))
        self._routes: dict[bytes, Route] = {}
        self._labels: set[str] = set()
        self._version = interceptor.version

    def route(self, path: bytes) -> Route:
        """Returns the route of a new stream."""
        if self._version != self.interceptor.version:
            self.forget_routes()
        return self._routes.get(path) or self._learn(path)

    def forget_routes(self) -> None:
        """Forgets all routes: the interceptor wants other calls, or is asked no more."""
        self._routes.clear()
        self._version = self.interceptor.version

    def _learn(self, path: bytes) -> Route:
        if len(path) > MAX_PATH_BYTES:
            return self.other
        text = path.decode("ascii", "replace")
        plan = PASS if self.bypass else self.interceptor.plan(text)
        if plan.treatment is Treatment.PASS and text not in self._labels and len(self._labels) >= MAX_LABELS:
            return self.other
        self._labels.add(text)
        latency = histogram_of(text, self.metrics.call_duration_seconds)
        passes = plan.treatment in (Treatment.PASS, Treatment.REWRITE)
        return self._routes.setdefault(path, Route(text, text, plan, passes, latency))


def histogram_of(path: str, histograms: dict[str, Histogram]) -> Histogram:
    """Returns the histogram that times calls of ``path``; those that are not CRI's share one."""
    is_own = path in histograms or (path.startswith(_CRI) and len(histograms) < MAX_TIMED_METHODS)
    return histograms[path if is_own else OTHER]


def _nothing() -> None:
    """Does nothing: no part measures the work."""
