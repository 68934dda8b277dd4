"""One exchange with a port of a pod's loopback, through the API server and kubelet: what ``kubectl port-forward`` does.

A WebSocket of the subprotocol ``v4.channel.k8s.io``, which kubelets of all supported releases speak: each message
begins with its channel, 0 for data and 1 for errors, and the first of each channel from the server is the port.
Source: k8s.io/kubelet/pkg/cri/streaming/portforward/websocket.go.
Fails with the errors of ``koord.kube.errors``; Unreachable where kubelet cannot connect to the port.
"""

from __future__ import annotations

import asyncio
import struct

from koord.kube.errors import Unreachable
from koord.kube.kind import POD, Key
from koord.kube.transport import HTTPRequest, Transport

PROTOCOL = "v4.channel.k8s.io"
DATA, ERROR = 0, 1
PORT = struct.Struct("<H")


async def exchange(transport: Transport, pod: Key, port: int, request: bytes, timeout_s: float) -> bytes:
    """Sends ``request``, and returns all that comes until the other side ends."""
    opening = HTTPRequest("GET", f"{POD.object_path(pod)}/portforward", {"ports": str(port)})
    answer, begun = bytearray(), set[int]()
    try:
        async with asyncio.timeout(timeout_s), transport.websocket(opening, PROTOCOL) as messages:
            await messages.send(bytes((DATA,)) + request)
            async for message in messages:
                channel, said = message[0], message[1:]
                if channel not in begun:
                    begun.add(channel)
                    if said != PORT.pack(port):
                        raise _failed(pod, port, f"the other side forwards something else: {said!r}")
                elif channel == ERROR:
                    raise _failed(pod, port, said.decode(errors="replace").strip())
                else:
                    answer += said
    except TimeoutError as error:
        raise _failed(pod, port, "no answer in time") from error
    return bytes(answer)


def _failed(pod: Key, port: int, why: str) -> Unreachable:
    return Unreachable(f"port {port} of pod {pod}: {why}", may_have_arrived=True)
