"""The product's overcommit against its oracle, on as many generated nodes as you like.

    python -m tests.oracles.overcommit_run --nodes 100000

The last line says how many nodes were compared, how many differ, and the seconds it took. Exits with 1 if any differs;
each is named by its seed, with what differs. Seeds are split over ``--processes``; no result depends on their number.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from multiprocessing import Pool, cpu_count
from random import Random
from typing import NamedTuple

import msgspec

from koord.model import core, schema
from koord.model.core import Node, Pod
from koord.model.nodemetric import NodeMetric
from koord.model.problem import Problem
from koord.overcommit.amounts import CPUMemory
from koord.overcommit.offer import offer
from koord.overcommit.strategy import DEFAULTS, ColocationStrategy
from koord.sloconfig import colocation
from tests.oracles.nodes import NOW_S, Documents, documents
from tests.oracles.objects import Document
from tests.oracles.overcommit import KEYS, expected


class Setting(NamedTuple):
    """What no document says."""

    metric_seen_s: float | None
    ratio_hundredths: int


class Difference(NamedTuple):
    seed: int
    key: str
    product: int | None
    oracle: int | None

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.key} is {self.product}, and by the oracle {self.oracle}"


def setting(seed: int) -> Setting:
    rng = Random(-1 - seed)
    seen_s = None if rng.random() < 0.7 else NOW_S - rng.choice((-30, 0, 60, 899, 901, 4000))
    return Setting(seen_s, rng.choice((100, 100, 100, 101, 120, 133, 250, 500)))


def offered(case: Documents, of: Setting) -> dict[str, int | None]:
    """What the product says, by the oracle's keys."""
    node, pods, metric, strategy, now_s = case
    found = offer(
        core.read(Node, msgspec.json.encode(node)),
        [core.read(Pod, msgspec.json.encode(pod)) for pod in pods],
        None if metric is None else core.read(NodeMetric, msgspec.json.encode(metric)),
        schema.overlay(DEFAULTS, _strategy(strategy)),
        now_s,
        of.metric_seen_s,
        of.ratio_hundredths / 100,
    )
    amounts = [amount for each in (found.published_batch, found.published_mid, found.batch) for amount in _pair(each)]
    return dict(zip(KEYS, amounts, strict=True))


def _strategy(document: Document) -> ColocationStrategy:
    wrong = list[Problem]()
    strategy = colocation.checked(schema.read(ColocationStrategy, document), "strategy", wrong.append)
    assert not wrong
    return strategy


def _pair(amounts: CPUMemory | None) -> tuple[int | None, int | None]:
    return (None, None) if amounts is None else (amounts.cpu_milli, amounts.memory_bytes)


def differences(seed: int) -> list[Difference]:
    case, of = documents(seed), setting(seed)
    product, oracle = offered(case, of), expected(*case, **of._asdict())
    return [Difference(seed, key, product[key], oracle[key]) for key in KEYS if product[key] != oracle[key]]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=2000, help="how many (%(default)s)")
    parser.add_argument("--first-seed", type=int, default=0, help="of so many in a row (%(default)s)")
    parser.add_argument("--processes", type=int, default=cpu_count(), help="at a time (%(default)s)")
    chosen = parser.parse_args(arguments)
    seeds = range(chosen.first_seed, chosen.first_seed + chosen.nodes)
    start_s, count = time.monotonic(), 0
    with Pool(chosen.processes) as pool:
        for found in pool.imap_unordered(differences, seeds, chunksize=100):
            count += bool(found)
            for difference in found:
                print(difference)
    seconds = time.monotonic() - start_s
    print(f"nodes compared {len(seeds)}, differences {count}, seconds {seconds:.0f}")
    return 1 if count or not seeds else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
