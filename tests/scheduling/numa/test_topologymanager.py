"""The topology manager's choice: the cases that matter, and any against all combinations."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product

import pytest

from koord.model.scheduling.numa import NUMATopologyPolicy
from koord.scheduling.numa import topologymanager
from koord.scheduling.numa.topologymanager import Affinity, Hint, Keeping, Refusal

NONE, BEST_EFFORT, RESTRICTED, SINGLE = NUMATopologyPolicy
YES, NO = True, False


@pytest.mark.parametrize(
    ("hints", "keeping", "best_effort", "restricted", "single"),
    [
        pytest.param(
            {"cpu": [(1, YES, 3), (2, YES, 5), (3, NO, 9)]},
            None,
            Affinity(2, True, 5),
            Affinity(2, True, 5),
            Affinity(2, True, 5),
            id="the higher score of those that are preferred",
        ),
        pytest.param(
            {"cpu": [(1, YES, 5), (2, YES, 5)]},
            None,
            Affinity(1, True, 5),
            Affinity(1, True, 5),
            Affinity(1, True, 5),
            id="equal: the lowest number",
        ),
        pytest.param(
            {"cpu": [(3, YES, 1)]},
            None,
            Affinity(3, True, 1),
            Affinity(3, True, 1),
            Refusal("Unsatisfied NUMA cpu"),
            id="both are needed",
        ),
        pytest.param(
            {"cpu": [(1, YES, 0)], "memory": [(2, YES, 0)]},
            None,
            Affinity(3),
            Refusal("Unaligned NUMA Hint cause [cpu memory]"),
            Refusal("Unaligned NUMA Hint cause [cpu memory]"),
            id="nothing in common: all, if that is no matter",
        ),
        pytest.param(
            {"cpu": [(1, YES, 2), (3, NO, 0)], "memory": [(3, YES, 1)]},
            None,
            Affinity(1, False, 2),
            Refusal("Unaligned NUMA Hint cause [cpu memory]"),
            Refusal("Unsatisfied NUMA memory"),
            id="a part in common is not preferred, though both prefer theirs",
        ),
        pytest.param(
            {"cpu": [(1, YES, 0)], "gpu": []},
            None,
            Affinity(1),
            Refusal("Unsatisfied NUMA gpu"),
            Refusal("Unsatisfied NUMA gpu"),
            id="a resource that nothing has",
        ),
        pytest.param({}, None, Affinity(3, True), Affinity(3, True), Affinity(None, True), id="nobody has a say"),
        pytest.param(
            {"cpu": [(1, YES, 0), (2, YES, 0)]},
            Keeping(shared=1),
            Affinity(2, True),
            Affinity(2, True),
            Affinity(2, True),
            id="one alone keeps off pods across several",
        ),
        pytest.param(
            {"cpu": [(3, YES, 0)]},
            Keeping(single=2),
            Affinity(3),
            Refusal("Unaligned NUMA Hint cause [cpu]"),
            Refusal("Unsatisfied NUMA cpu"),
            id="across several keeps off one alone",
        ),
        pytest.param(
            {"cpu": [(3, YES, 0)]},
            Keeping(single=2, shared=2),
            Affinity(3, True),
            Affinity(3, True),
            Refusal("Unsatisfied NUMA cpu"),
            id="what is shared already is no matter to one across several",
        ),
    ],
)
def test_policies(
    hints: dict[str, list[tuple[int, bool, int]]],
    keeping: Keeping | None,
    best_effort: Affinity,
    restricted: Affinity | Refusal,
    single: Affinity | Refusal,
) -> None:
    """NUMA nodes 0 and 1, as 1 and 2, and both as 3. Providers may say it together or one resource each."""
    made = {name: [Hint(*each) for each in of_resource] for name, of_resource in hints.items()}
    for providers in ([made], [{name: each} for name, each in made.items()]):
        for policy, expected in ((BEST_EFFORT, best_effort), (RESTRICTED, restricted), (SINGLE, single)):
            assert topologymanager.admit(policy, providers, 3, keeping) == expected


def test_the_only_numa_node_is_no_choice() -> None:
    hints = {"cpu": [Hint(1, True, 7)]}
    assert topologymanager.admit(SINGLE, [hints], 1) == Affinity(None, True, 7)
    assert topologymanager.admit(RESTRICTED, [hints], 1) == Affinity(1, True, 7)


def by_combinations(by_resource: Sequence[Sequence[Hint]], every: int, keeping: Keeping | None) -> set[Affinity]:
    """All intersections, as preferred as they can be, each with the scores it can have."""
    found = set()
    choices: list[Sequence[Hint | None]] = [each or (None,) for each in by_resource]
    for chosen in product(*choices):
        hints = [each for each in chosen if each is not None]
        mask = every
        for each in hints:
            mask &= each.numa_nodes
        if mask:
            is_preferred = (
                len(hints) == len(by_resource)
                and all(each.is_preferred for each in hints)
                and len({each.numa_nodes for each in hints}) <= 1
                and (keeping is None or keeping.lets(mask))
            )
            found.add(Affinity(mask, is_preferred, sum(each.score for each in hints if each.numa_nodes == mask)))
    return found


@pytest.mark.parametrize("seed", range(400))
def test_the_choice_is_the_best_of_all_combinations(seed: int) -> None:
    draw = random.Random(seed)
    every = (1 << draw.randint(1, 4)) - 1
    by_resource = [
        [
            Hint(mask, draw.random() < 0.5, draw.randrange(4))
            for mask in draw.sample(range(1, every + 1), draw.randint(0, min(every, 6)))
        ]
        for _ in range(draw.randrange(4))
    ]
    keeping = Keeping(draw.randrange(every + 1), draw.randrange(every + 1)) if draw.random() < 0.5 else None
    best = topologymanager.merge(by_resource, every, keeping)
    every_one = by_combinations(by_resource, every, keeping) or {Affinity(every)}

    def rank(each: Affinity) -> tuple[bool, int, int]:
        return not each.is_preferred, (each.numa_nodes or 0).bit_count(), -each.score

    assert rank(best) == min(map(rank, every_one))
    assert best in every_one
    assert best.numa_nodes == min(
        (each.numa_nodes for each in every_one if rank(each) == rank(best)),
        key=lambda mask: [number for number in range(4) if (mask or 0) >> number & 1],
    )
