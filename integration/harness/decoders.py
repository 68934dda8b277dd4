"""What the two runtimes' protobuf libraries understand of a message: gogo (containerd 1.6), golang (2.x, kubelet).

The programs are built by ``integration.build`` (targets ``cri`` and ``cri-gogo``); each run decodes a batch.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from integration import build


@dataclass(frozen=True, slots=True)
class Decoded:
    """``fields`` by proto field names without defaults, ``wire`` encoded again; ``error`` alone if it was refused."""

    fields: dict[str, Any]
    wire: bytes
    error: str


def golang() -> Path:
    return build.build("cri") / "cri-decode"


def gogo() -> Path:
    """Knows runtime.v1 and runtime.v1alpha2, as of Kubernetes 1.25; the order of map entries in ``wire`` varies."""
    return build.build("cri-gogo") / "cri-decode-gogo"


def decode(program: Path, messages: Iterable[tuple[str, bytes]]) -> list[Decoded]:
    """Decode messages given by full name, such as ``runtime.v1.CreateContainerRequest``, and wire bytes."""
    lines = "".join(f"{name} {base64.b64encode(wire).decode()}\n" for name, wire in messages)
    done = subprocess.run([str(program)], input=lines, check=True, capture_output=True, text=True)
    return [_decoded(json.loads(line)) for line in done.stdout.splitlines()]


def descriptors() -> FileDescriptorSet:
    """Every message of runtime.v1, out of the pinned Go module ``k8s.io/cri-api``."""
    program = build.build("cri") / "cri-descriptors"
    return FileDescriptorSet.FromString(subprocess.run([str(program)], check=True, capture_output=True).stdout)


def _decoded(answer: dict[str, Any]) -> Decoded:
    return Decoded(answer.get("json", {}), base64.b64decode(answer["bytes"] or ""), answer.get("error", ""))
