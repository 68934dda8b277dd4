"""Distributions with plugins, installed into a directory that Python imports from."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from koord_scheduler.userplugins import GROUP

PREFIX = "koordtest_"
"""Of the names of all modules that are installed here: they are forgotten with their directories."""


class Site:
    """``path``: is among those that Python imports from, for the time of a test."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        monkeypatch.syspath_prepend(path)
        for name in [name for name in sys.modules if name.startswith(PREFIX)]:
            monkeypatch.delitem(sys.modules, name)

    def install(self, distribution: str, source: str, **plugins: str) -> None:
        """``plugins``: by their names, the attributes of the module that ``source`` is."""
        module = PREFIX + distribution
        self.path.joinpath(f"{module}.py").write_text(dedent(source))
        self._describe(distribution, {name: f"{module}:{attribute}" for name, attribute in plugins.items()})
        importlib.invalidate_caches()

    def _describe(self, distribution: str, entry_points: Mapping[str, str]) -> None:
        info = self.path / f"{distribution}-1.0.dist-info"
        info.mkdir()
        info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        lines = [f"{name} = {value}" for name, value in entry_points.items()]
        info.joinpath("entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines, ""]))
