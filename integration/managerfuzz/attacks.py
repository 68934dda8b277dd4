"""The attacks, one in a process: ``python -m integration.managerfuzz.attacks NAME``. They end after ``--seconds``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from integration.managerfuzz import frames, nodes, strangers
from integration.managerfuzz.target import Attack, parsed

ATTACKS: dict[str, Attack] = {
    "handshakes without a certificate": strangers.handshakes,
    "silent connections to NodeLink": strangers.silent_nodelink,
    "unfinished handshakes with NodeLink": strangers.unfinished_handshakes,
    "600 idle webhook connections": strangers.idle_webhooks,
    "560 slow heads": strangers.slow_heads,
    "reviews of 250 containers": strangers.containers(250, 64),
    "reviews of 4,096 containers": strangers.containers(4096, 8),
    "reviews of 62,000 containers": strangers.containers(62_000, 8),
    "reviews of 2,000,000 empty objects": strangers.empty_objects(2_000_000, 8),
    "reviews of long ConfigMaps": strangers.config_maps,
    "reviews in forged namespaces": strangers.forged_reviews,
    "100 slow posts of 7 MB": strangers.slow_posts,
    "endless and silent status requests": strangers.status_pages,
    "a node's control frames": frames.floods(frames.CONTROL),
    "a node's streams": frames.floods(frames.STREAMS),
    "a node's header blocks": frames.floods(frames.HEADS),
    "a node's unfinished messages": frames.unfinished_messages,
    "a node's 500 connections": nodes.many_connections,
    "a node's large reports": nodes.many_reports,
    "a node's 800 evictions": nodes.many_evictions,
    "a node's 1,000 certificate requests": nodes.certificate_requests,
}


def main() -> None:
    name, target = parsed("One attack on koord-manager.", ATTACKS)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # of each write to a connection that was cut

    async def run() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(target.end_s + 1 - time.monotonic()):
                await ATTACKS[name](target)

    asyncio.run(run())


if __name__ == "__main__":
    main()
