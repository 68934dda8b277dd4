"""Byte strings that no honest CRI client sends, made from a seeded random source.

Pure: the same source gives the same attacks. Each attack is what one connection says, in pieces; what it may do
besides (drip, stop reading) is in its fields. From the crude (noise) to the subtle (one flipped bit, a protobuf
message whose inner length lies).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from koord.pb.cri import api_pb2 as pb
from tests.runtimeproxy.relay import raw

SERVICE = "/runtime.v1.RuntimeService/"
BIG = "/fuzz.Service/Big"  # the backend answers it with megabytes
GONE = "/fuzz.Service/Gone"  # the same, and soon after ends the connection
LARGEST_WINDOW = 2**31 - 1
HELD = ("RunPodSandbox", "CreateContainer", "UpdateContainerResources", "StopContainer", "RemovePodSandbox")
COUNTS = (1, 10, 10, 100, 100, 100, 1_000, 1_000, 10_000)  # of streams
METHODS = (*HELD, "Version", "Status", "ListContainers", "NoSuchMethod")


@dataclass(frozen=True, slots=True)
class Attack:
    """What one connection says. ``drips``: byte by byte; ``reads``: whether it takes any answer."""

    name: str
    pieces: tuple[bytes, ...]
    drips: bool = False
    reads: bool = True


def attack(chance: Random) -> Attack:
    """The next attack of this source."""
    return chance.choice(KINDS)(chance)


def noise(chance: Random) -> Attack:
    opening = chance.choice([b"", raw.OPENING, raw.OPENING[: chance.randrange(40)], b"GET / HTTP/1.1\r\n\r\n"])
    return Attack("noise", (opening, chance.randbytes(chance.randrange(20_000))))


def frames(chance: Random) -> Attack:
    """Frames of any type, flags and stream; some lie about their length."""
    return Attack("frames", (raw.OPENING, b"".join(_any_frame(chance) for _ in range(chance.randrange(1, 60)))))


def flipped(chance: Random) -> Attack:
    """A proper session, then damaged in a few places."""
    session = bytearray(raw.OPENING + b"".join(_call(chance, 2 * n + 1) for n in range(chance.randrange(1, 8))))
    for _ in range(chance.randrange(1, 6)):
        place = chance.randrange(24, len(session))
        match chance.randrange(4):
            case 0:
                session[place] ^= 1 << chance.randrange(8)
            case 1:
                del session[place : place + chance.randrange(1, 20)]
            case 2:
                session[place:place] = chance.randbytes(chance.randrange(1, 20))
            case _:
                del session[place + 1 :]
        if len(session) <= 25:
            break
    return Attack("flipped", (bytes(session),), drips=chance.random() < 0.1)


def header_blocks(chance: Random) -> Attack:
    """Random HPACK, sometimes behind a good beginning, sometimes in many CONTINUATIONs."""
    block = raw.request_block(SERVICE + chance.choice(METHODS)) * chance.randrange(2) + chance.randbytes(
        chance.randrange(200)
    )
    cuts = sorted(chance.randrange(len(block) + 1) for _ in range(chance.randrange(4)))
    parts = [block[a:b] for a, b in zip([0, *cuts], [*cuts, len(block)], strict=True)]
    said = [raw.frame(raw.HEADERS, 0 if len(parts) > 1 else raw.END_HEADERS, 1, parts[0])]
    for number, part in enumerate(parts[1:], 2):
        said.append(raw.frame(raw.CONTINUATION, raw.END_HEADERS if number == len(parts) else 0, 1, part))
    return Attack("header blocks", (raw.OPENING, *said))


def continuations(chance: Random) -> Attack:
    piece = raw.frame(raw.CONTINUATION, 0, 1, bytes(chance.choice([0, 0, 1, 100, 16_384])))
    return Attack("continuations", (raw.OPENING, raw.frame(raw.HEADERS, 0, 1), *[piece * 100] * chance.randrange(300)))


def resets(chance: Random) -> Attack:
    path, count = SERVICE + chance.choice(METHODS), chance.choice(COUNTS)
    said = [raw.headers(n, path) + raw.frame(raw.DATA, 0, n, b"\0") + raw.rst_stream(n) for n in range(1, 2 * count, 2)]
    return Attack("resets", (raw.OPENING, b"".join(said)), reads=chance.random() < 0.8)


def streams(chance: Random) -> Attack:
    """Thousands of open streams that wait for the rest of their message."""
    path = SERVICE + chance.choice(METHODS)
    said = [raw.headers(n, path) + raw.frame(raw.DATA, 0, n, b"\0\0") for n in range(1, 2 * chance.choice(COUNTS), 2)]
    return Attack("streams", (raw.OPENING, b"".join(said)))


def windows(chance: Random) -> Attack:
    """Windows of all sizes, from both ends of their range."""
    sizes = (0, 1, 65_535, LARGEST_WINDOW, 2**32 - 1)
    said = [raw.headers(1, BIG), raw.frame(raw.DATA, raw.END_STREAM, 1, bytes(5))]
    for _ in range(chance.randrange(200)):
        value = chance.choice(sizes).to_bytes(4, "big")
        setting = chance.choice([1, 2, 3, 4, 5, 6, 99]).to_bytes(2, "big")
        kind = chance.randrange(2)
        frame = raw.frame(raw.SETTINGS, 0, 0, setting + value) if kind else raw.window_update(chance.randrange(4), 0)
        said.append(frame if kind else frame[:9] + value)
    return Attack("windows", (raw.OPENING, *said))


def overrun(chance: Random) -> Attack:
    """DATA far beyond every window, on a held stream or not, that never ends."""
    data = raw.frame(raw.DATA, chance.choice([0, 0, raw.PADDED]), 1, bytes(16_384))
    path = SERVICE + chance.choice(METHODS)
    return Attack("overrun", (raw.OPENING, raw.headers(1, path), *[data] * chance.randrange(2_000)))


def empty_data(chance: Random) -> Attack:
    """What costs no window: empty DATA, PING, PRIORITY, SETTINGS, behind a spent window or not."""
    spent = raw.frame(raw.DATA, 0, 1, bytes(16_384)) * chance.choice([0, 4])
    cheap = chance.choice([
        raw.frame(raw.DATA, 0, 1), raw.frame(raw.PING, 0, 0, bytes(8)), raw.frame(raw.PRIORITY, 0, 1, bytes(5)),
        raw.frame(raw.SETTINGS), raw.frame(raw.SETTINGS, raw.ACK), raw.frame(0xFA, 0, 0, b"x"),
    ])  # fmt: skip
    said = [raw.headers(1, SERVICE + "Version"), spent, *[cheap * 1_000] * chance.choice([1, 3, 10, 30, 100])]
    return Attack("cheap frames", (raw.OPENING, *said), reads=chance.random() < 0.5)


def deaf(chance: Random) -> Attack:
    """Asks for megabytes, many times, and reads none of it."""
    settings = raw.frame(raw.SETTINGS, 0, 0, b"\0\4" + LARGEST_WINDOW.to_bytes(4, "big"))
    said = [raw.headers(n, BIG) + raw.frame(raw.DATA, raw.END_STREAM, n, bytes(5)) for n in range(1, 21, 2)]
    return Attack("deaf", (raw.OPENING, settings, raw.window_update(0, 2**30), *said), reads=False)


def messages(chance: Random) -> Attack:
    """Proper HTTP/2 around bad gRPC or bad protobuf, on calls that are held."""
    said = []
    for stream in range(1, 2 * chance.randrange(2, 30), 2):
        message = _damaged(chance, _request().SerializeToString())
        lie = chance.choice([0, 0, 0, -1, 1, 1 << 20, (1 << 32) - 1 - len(message)])
        prefix = bytes([chance.choice([0, 0, 0, 1, 255])]) + max(0, len(message) + lie).to_bytes(4, "big")
        said.append(raw.headers(stream, SERVICE + chance.choice(HELD)))
        said.append(raw.frame(raw.DATA, raw.END_STREAM, stream, prefix + message))
    return Attack("messages", (raw.OPENING, *said))


KINDS: tuple[Callable[[Random], Attack], ...] = (
    noise, frames, flipped, flipped, flipped, header_blocks, header_blocks, continuations, resets, streams, windows,
    overrun, empty_data, deaf, messages, messages, messages,
)  # fmt: skip


def _any_frame(chance: Random) -> bytes:
    payload = chance.randbytes(chance.choice([0, 1, 4, 5, 6, 8, 9, chance.randrange(300)]))
    length = chance.choice([None, None, None, None, None, None, 0, 1, len(payload) + 1, 16_385, (1 << 24) - 1])
    return raw.frame(chance.randrange(12), chance.randrange(256), chance.randrange(8), payload, length=length)


def _call(chance: Random, stream: int) -> bytes:
    message = _request().SerializeToString()
    body = b"\0" + len(message).to_bytes(4, "big") + message
    return raw.headers(stream, SERVICE + chance.choice(METHODS)) + raw.frame(raw.DATA, raw.END_STREAM, stream, body)


def _request() -> pb.CreateContainerRequest:
    metadata = pb.PodSandboxMetadata(name="pod", uid="uid", namespace="default")
    resources = pb.LinuxContainerResources(cpu_period=100_000, cpu_quota=50_000, cpuset_cpus="0-1", unified={"a": "b"})
    return pb.CreateContainerRequest(
        pod_sandbox_id="sandbox",
        config=pb.ContainerConfig(
            metadata=pb.ContainerMetadata(name="main"),
            envs=[pb.KeyValue(key="KEY", value=b"\xff\xfe")],
            annotations={"key": "value"},
            linux=pb.LinuxContainerConfig(resources=resources),
        ),
        sandbox_config=pb.PodSandboxConfig(
            metadata=metadata,
            labels={"koordinator.sh/qosClass": "LS"},
            linux=pb.LinuxPodSandboxConfig(cgroup_parent="/kubepods/poduid"),
        ),
    )


def _damaged(chance: Random, message: bytes) -> bytes:
    damaged = bytearray(message)
    for _ in range(chance.randrange(5)):
        damaged[chance.randrange(len(damaged))] = chance.randrange(256)
    return bytes(damaged[: chance.randrange(len(damaged) + 1)] if chance.random() < 0.3 else damaged)
