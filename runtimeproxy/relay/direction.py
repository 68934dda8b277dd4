"""Sends relayed frames, and frames of our own between them, in one direction of a pair.

Invariants: frames go out whole, in the order in which they came, ours behind those that came before; nothing of ours
reaches the client before the runtime's first frames, which are its SETTINGS.
"""

from __future__ import annotations

from collections.abc import Callable

from koord.http2.frames import DEFAULT_MAX_FRAME_BYTES
from koord.http2.hpack import HeaderDecoder
from runtimeproxy.metrics import Metrics
from runtimeproxy.relay.peerwriter import PeerWriter


class Direction:
    """Sends to ``peer``. ``relaying``: a run of frames is being relayed, and ``injected`` goes out with it.

    ``decoder`` and ``max_frame_bytes`` are for reading: both follow the SETTINGS of the end that is written to.
    """

    def __init__(self, peer: PeerWriter, metrics: Metrics, headers: tuple[bytes, ...]) -> None:
        self._peer = peer
        self._bytes = metrics.bytes
        self.decoder = HeaderDecoder(headers)
        self.max_frame_bytes = DEFAULT_MAX_FRAME_BYTES
        self.relaying = False
        self.injected: list[bytes] = []

    def inject(self, frames: bytes) -> None:
        """Sends whole frames of our own where the relayed ones go, behind those that came before."""
        if self.relaying:
            self.injected.append(frames)
        else:
            self.forward(frames)

    def forward(self, data: bytes) -> None:
        raise NotImplementedError


class ToRuntime(Direction):
    def __init__(self, peer: PeerWriter, metrics: Metrics) -> None:
        super().__init__(peer, metrics, (b":path", b"grpc-timeout", b"content-length", b"grpc-encoding"))

    def forward(self, data: bytes) -> None:
        self._bytes.to_runtime += len(data)
        self._peer.write(data)


class ToClient(Direction):
    """Sends to the client. ``settled``: the runtime's first frames have gone; ``on_settled`` is called then."""

    def __init__(self, peer: PeerWriter, metrics: Metrics) -> None:
        super().__init__(peer, metrics, (b"grpc-status",))
        self.settled = False
        self.on_settled: Callable[[], None]

    def inject(self, frames: bytes) -> None:
        """Sends frames of our own; until the runtime's SETTINGS have gone they wait to follow them."""
        if self.settled:
            super().inject(frames)
        else:
            self.injected.append(frames)

    def forward(self, data: bytes) -> None:
        self._bytes.to_client += len(data)
        self._peer.write(data)
        if not self.settled:
            self.settled = True
            self.on_settled()
