"""What koord-scheduler's pages say as JSON, for koordctl and other programs: who waits, and why a pod is where it is.

Times are RFC 3339 in UTC, "" where there is none. Readers skip what they do not know.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

POD_PAGE, QUEUE_PAGE = "/apis/v1/pods/", "/apis/v1/queue"
QUOTAS_PAGE = "/apis/v1/plugins/ElasticQuota/quotas"
QUOTA_PAGE = f"{QUOTAS_PAGE}/"
DEFAULT_PORT = 10251
ANNOTATION_STATUS_PORT = "koord.sh/status-port"
"""On the scheduler's Lease: where the leader's pages are, on its loopback address."""


class _Page(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    pass


class ScoredNode(_Page, frozen=True):
    """``total``: the sum of ``scores`` (0 to 100 each, by plugin), each times its weight."""

    node: str
    total: int
    scores: Mapping[str, int] = {}


class Placed(_Page, frozen=True):
    """``at``: when it was decided; "" if this scheduler does not remember. ``best``: the node, and the next best ones;
    none where it was the only one. ``attempts``: decisions, the last among them.
    """

    node: str
    at: str = ""
    node_count: int = 0
    feasible_count: int = 0
    attempts: int = 0
    waited_s: float = 0.0
    best: tuple[ScoredNode, ...] = ()
    weights: Mapping[str, int] = {}


class Example(_Page, frozen=True):
    node: str
    detail: str = ""


class Obstacle(_Page, frozen=True):
    """``node_count``: nodes that ``plugin`` rejects for ``reason``, and no plugin before it."""

    plugin: str
    reason: str
    node_count: int
    examples: tuple[Example, ...] = ()


class WaitingGang(_Page, frozen=True):
    """``least``: its minimum. ``waiting``, ``placed``, ``succeeded``: its members. ``missing``: those that it waits for
    to exist. ``needed``: so many must be placed together now, of which ``fitting`` would have a node, the others of its
    group placed before.
    """

    name: str
    least: int = 0
    match_policy: str = ""
    waiting: int = 0
    placed: int = 0
    succeeded: int = 0
    missing: int = 0
    needed: int = 0
    fitting: int = 0


class Waiting(_Page, frozen=True):
    """``queue``: active, backoff, unschedulable or gated. ``node_count``, ``feasible_count``, ``obstacles``, ``helps``:
    as of now; ``preemption``: why it makes no room for itself; ``message``: what was said of the last attempt.
    ``gangs``: its own gang, and those that start with it; ``held``: why they are not tried at all; ``problems``: what
    of their settings counts as absent.
    """

    queue: str
    since: str
    attempts: int = 0
    tried_again_at: str = ""
    nominated_node: str = ""
    node_count: int = 0
    feasible_count: int = 0
    obstacles: tuple[Obstacle, ...] = ()
    helps: tuple[str, ...] = ()
    preemption: str = ""
    message: str = ""
    gangs: tuple[WaitingGang, ...] = ()
    held: str = ""
    problems: tuple[str, ...] = ()


class PodPage(_Page, frozen=True):
    """``state``: placed, binding (decided, not confirmed yet), waiting, deciding, unreadable, ended, or other: it is
    another scheduler's. ``remark``: about a state that has no member.
    """

    namespace: str
    name: str
    uid: str = ""
    scheduler: str = ""
    priority: int = 0
    state: str = ""
    remark: str = ""
    placed: Placed | None = None
    waiting: Waiting | None = None


class QueueRow(_Page, frozen=True):
    """Pods of one owner that wait alike, or one pod. ``name``: the first one's; ``since``: since when the first waits;
    ``attempts``: the most of any. ``waiting_for``: what was said last, the gates, or its turn.
    """

    namespace: str
    name: str
    queue: str
    owner: str = ""
    pod_count: int = 1
    priority: int = 0
    scheduler: str = ""
    since: str = ""
    attempts: int = 0
    waiting_for: str = ""


class QueuePage(_Page, frozen=True):
    """``counts``: all pods, by part of the queue. ``rows``: the most important, and then the oldest, first.
    ``left_out_count``: pods that are in no row, as more rows were not asked for.
    """

    counts: Mapping[str, int] = {}
    rows: tuple[QueueRow, ...] = ()
    left_out_count: int = 0


class QuotaAmounts(_Page, frozen=True):
    """Of one resource of a quota, as Kubernetes writes amounts; ``maximum``, ``runtime`` "": it is not limited.
    ``steps``: how the runtime comes about, from the tree's root down.
    """

    resource: str
    minimum: str = "0"
    maximum: str = ""
    request: str = "0"
    used: str = "0"
    runtime: str = ""
    is_overused: bool = False
    steps: tuple[str, ...] = ()


class QuotaPage(_Page, frozen=True):
    """An ElasticQuota. ``problem``: why it can be used for nothing. ``pod_count``: its own pods on nodes."""

    name: str
    namespace: str = ""
    parent: str = ""
    tree: str = ""
    lends: bool = True
    problem: str = ""
    children: tuple[str, ...] = ()
    pod_count: int = 0
    amounts: tuple[QuotaAmounts, ...] = ()


class QuotasPage(_Page, frozen=True):
    """All quotas, by their names, without ``steps``."""

    quotas: tuple[QuotaPage, ...] = ()


class ErrorPage(_Page, frozen=True):
    message: str = ""
