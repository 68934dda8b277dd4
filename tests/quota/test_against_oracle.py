"""What quotas may use equals, to the unit and for each resource, what exact fractions make of the definition."""

from __future__ import annotations

from random import Random

import pytest

from koord.quota.forest import Forest, QuotaRules
from tests.quota import generated
from tests.quota.oracle import OracleQuota


def check(seed: int) -> None:
    of = generated.oracle(Random(seed))
    expected = {
        (each.name, resource): of.runtime(each, resource) for each in of.quotas for resource in generated.RESOURCES
    }
    assert generated.runtimes(generated.forest(of, Random(seed)), of) == expected, f"seed {seed}"


def test_a_slice_of_the_generated_trees() -> None:
    for seed in range(150):
        check(seed)


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_generated_trees(part: int) -> None:
    for seed in range(part * 1000, part * 1000 + 1000):
        check(seed)


@pytest.mark.parametrize("guarantees", [False, True])
def test_after_any_history_the_forest_is_as_one_that_is_made_anew(guarantees: bool) -> None:
    for seed in range(25):
        random = Random(seed)
        of = generated.oracle(random)
        lived = Forest(QuotaRules(of.scales, guarantees))
        pods: list[tuple[OracleQuota, dict[str, int], bool]] = []
        of.guarantees = guarantees
        for each in of.quotas:
            each.pods.clear()
        for _ in range(60):
            quota, step = random.choice(of.quotas), random.random()
            if step < 0.25:
                generated.limit(random, quota, generated.SIZES["usual"])
                lived.put(generated.spec(quota))
            elif step < 0.35:
                lived.put_cluster(of.cluster)
            elif step < 0.7 or not pods:
                amounts, is_placed = generated.amounts_of(random, 1000), random.random() < 0.6
                pods.append((quota, amounts, is_placed))
                generated.put_pod(lived, *pods[-1])
            else:
                quota, amounts, is_placed = pods.pop(random.randrange(len(pods)))
                lived.request(quota.name, amounts, sign=-1)
                if is_placed:
                    lived.use(quota.name, amounts, sign=-1)
            if random.random() < 0.5:
                generated.runtimes(lived, of)
        for quota, amounts, is_placed in pods:
            quota.pods.append((amounts, is_placed))
        for quota in of.quotas:
            lived.put(generated.spec(quota))
        lived.put_cluster(of.cluster)
        assert generated.runtimes(lived, of) == generated.runtimes(generated.forest(of, random), of), f"seed {seed}"
