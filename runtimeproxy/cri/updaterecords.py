"""Keeps the changes that updates made to containers' records (``requested``), as long as the containers exist.

Each container that kubelet updated has a file, since no runtime keeps an annotation that comes with an update. The
files are read when they are needed and not before, so a successor sees what its predecessor wrote.

Invariant: recording makes no call fail. A file that cannot be written is logged; what it should hold is in memory until
the proxy ends, and forgotten then. Files and what is in memory are bounded (``_MOST``).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Container, Iterable
from pathlib import Path

from runtimeproxy.cri.requested import Record, format_record, parse_record

_MOST = 4096
_SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_log = logging.getLogger("runtimeproxy.cri")


class UpdateRecords:
    """Keeps records by container id, in files of ``directory``; "" = in memory alone."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory) if directory else None
        self._unwritten: dict[str, Record] = {}

    def read(self, container_id: str) -> Record:
        """Returns the fields that updates of this container changed; empty if there are none."""
        if container_id in self._unwritten:
            return self._unwritten[container_id]
        path = self._path(container_id)
        try:
            return {} if path is None else parse_record(path.read_text("ascii", "replace"))
        except OSError:
            return {}

    def add(self, container_id: str, record: Record) -> None:
        """Sets these fields of the container's record."""
        whole = {**self.read(container_id), **record}
        self._unwritten.pop(container_id, None)
        path = self._path(container_id)
        try:
            if path is None or not (path.exists() or len(self.ids()) < _MOST):
                raise OSError(f"{path or container_id} is not one of {_MOST} files")
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            partial = path.with_name(f".{path.name}")
            partial.write_text(format_record(whole), encoding="ascii")
            partial.replace(path)
        except OSError as error:
            if self._directory is not None:
                _log.warning("container %s: its update is forgotten at a restart: %s", container_id, error)
            self._unwritten[container_id] = whole
            if len(self._unwritten) > _MOST:
                del self._unwritten[next(iter(self._unwritten))]

    def remove(self, container_id: str) -> None:
        """Removes the record of a container that is gone."""
        self._unwritten.pop(container_id, None)
        if (path := self._path(container_id)) is not None:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    def ids(self) -> list[str]:
        """Returns the containers that have a file."""
        try:
            return [] if self._directory is None else os.listdir(self._directory)
        except OSError:
            return []

    def remove_others(self, recorded: Iterable[str], existing: Container[str]) -> None:
        """Removes the files of those ``recorded`` containers that do not exist: they went while no proxy ran.

        ``recorded``: of ``ids``, as it was before the runtime was asked which containers exist.
        """
        for container_id in recorded:
            if container_id not in existing:
                self.remove(container_id)

    def _path(self, container_id: str) -> Path | None:
        if self._directory is None or not _SAFE_ID.fullmatch(container_id):
            return None
        return self._directory / container_id
