"""Forests of quotas with pods, drawn from a seed, for the oracle and for us."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from koord.quota.forest import Forest, QuotaRules
from koord.quota.spec import QuotaSpec
from tests.quota.oracle import DEFAULT, ROOT, SYSTEM, Oracle, OracleQuota

RESOURCES = ("cpu", "memory", "nvidia.com/gpu")
SIZES = {"small": 12, "usual": 100_000, "large": 2**46}


def oracle(random: Random) -> Oracle:
    size = SIZES[random.choice(sorted(SIZES))]
    trees = ["", ""] if random.random() < 0.6 else ["", "t1", "t2"]
    quotas = [OracleQuota(name, maximum=dict.fromkeys(RESOURCES, size * 9)) for name in (SYSTEM, DEFAULT)]
    for tree in sorted({*trees} - {""}):
        total = amounts_of(random, size)
        ignores = random.random() < 0.3
        quotas.append(OracleQuota(f"root-{tree}", ROOT, tree, total=total, ignores_default_tree=ignores))
        limit(random, quotas[-1], size)
    for number in range(random.randint(1, 14)):
        above = [each for each in quotas[2:] if random.random() < 0.7]
        parent = random.choice(above) if above and random.random() < 0.7 else None
        tree = parent.tree if parent else random.choice(trees)
        quotas.append(OracleQuota(f"q{number}", parent.name if parent else ROOT, tree, random.random() < 0.75))
        limit(random, quotas[-1], size)
    for quota in quotas:
        for _ in range(random.choice((0, 0, 1, 2, 4))):
            quota.pods.append((amounts_of(random, size), random.random() < 0.5))
    cluster = amounts_of(random, size * random.choice((1, 3, 9)))
    return Oracle(quotas, cluster, random.random() < 0.7, random.random() < 0.3)


def forest(of: Oracle, random: Random) -> Forest:
    """The same, in an order that is drawn."""
    made = Forest(QuotaRules(of.scales, of.guarantees))
    steps: list[Callable[[], None]] = [partial(made.put, spec(quota)) for quota in of.quotas]
    steps += [partial(put_pod, made, quota, *each) for quota in of.quotas for each in quota.pods]
    steps.append(partial(made.put_cluster, of.cluster))
    random.shuffle(steps)
    for step in steps:
        step()
        if random.random() < 0.2:
            runtimes(made, of)
    return made


def spec(quota: OracleQuota) -> QuotaSpec:
    return QuotaSpec(
        quota.name, "", quota.parent, quota.tree, False, quota.lends, {**quota.minimum}, {**quota.maximum},
        {**quota.weight}, (), quota.total, quota.ignores_default_tree,
    )  # fmt: skip


def runtimes(made: Forest, of: Oracle) -> dict[tuple[str, str], int | None]:
    found: dict[tuple[str, str], int | None] = {}
    for each in of.quotas:
        if (quota := made.get(each.name)) is not None:
            found.update({(each.name, resource): made.runtime(quota, resource) for resource in RESOURCES})
    return found


def put_pod(made: Forest, quota: OracleQuota, amounts: dict[str, int], is_placed: bool) -> None:
    made.request(quota.name, amounts)
    if is_placed:
        made.use(quota.name, amounts)


def limit(random: Random, quota: OracleQuota, size: int) -> None:
    for resource in RESOURCES:
        maximum = random.randint(0, size)
        if random.random() < 0.9:
            quota.maximum[resource] = maximum
        if random.random() < 0.8:
            quota.minimum[resource] = random.randint(0, maximum)
        quota.weight[resource] = random.choice((maximum, 0, 1, 2, 3, random.randint(0, size)))


def amounts_of(random: Random, size: int) -> dict[str, int]:
    return {resource: random.randint(0, size) for resource in RESOURCES if random.random() < 0.9}
