"""Kinds of error lines in a log written by klog: where in the source, and which message.

Two lines are of one kind if their source position and message agree once what differs from pod to pod (ids, numbers,
paths, quoted values) is taken out.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

# "E1121 14:36:00.123456    4711 kubelet.go:2345] "Message" err="…" pod="…""
_LINE = re.compile(r"^(?P<severity>[EF])\d{4} [\d:.]+\s+\d+ (?P<source>[\w.-]+:\d+)\] (?P<text>.*)$")
_STRUCTURED = re.compile(r'^"(?P<message>(?:[^"\\]|\\.)*)"')
_VOLATILE = re.compile(r'"(?:[^"\\]|\\.)*"|/[\w./@:-]+|\b[0-9a-f-]{8,}\b|\d+')


def error_kinds(log: Path, since_bytes: int = 0) -> Counter[str]:
    """Kinds of error lines with their counts, from that place in the file; each kind reads ``file.go:123 message``."""
    kinds: Counter[str] = Counter()
    with log.open(errors="replace") as file:
        file.seek(since_bytes)
        for line in file:
            if found := _LINE.match(line):
                kinds[f"{found['source']} {_message(found['text'])}"] += 1
    return kinds


def _message(text: str) -> str:
    structured = _STRUCTURED.match(text)
    return _VOLATILE.sub("*", structured["message"] if structured else text)
