"""Wheels to package: one with a few lines in it, and a real one under another version number."""

from __future__ import annotations

import zipfile
from pathlib import Path

from release.wheels import Wheel

UNITS = ("koord-runtime-proxy.socket", "koord-runtime-proxy.service", "koord-qosd.service", "koord.slice")


def tiny(version: str, directory: Path) -> Wheel:
    """A koord whose programs can be imported and do nothing: its maintainer scripts are what matters."""
    path = directory / f"koord-{version}-py3-none-any.whl"
    directory.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"koord-{version}.dist-info/METADATA", f"Name: koord\nVersion: {version}\nSummary: tiny\n")
        archive.writestr("koord/__init__.py", f'__version__ = "{version}"\n')
        for unit in UNITS:
            archive.writestr(f"koord-{version}.data/data/share/koord/systemd/{unit}", f"# of {version}\n")
    return Wheel.of(path)


def renamed(wheel: Wheel, version: str, directory: Path) -> Wheel:
    """The same code as ``wheel``, which calls itself ``version``."""
    path = directory / f"koord-{version}-py3-none-any.whl"
    directory.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel.path) as source, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for info in source.infolist():
            content = source.read(info)
            name = info.filename.replace(f"koord-{wheel.version}.", f"koord-{version}.")
            if info.filename.endswith(("koord/_version.py", "/METADATA", "/RECORD")):
                content = content.replace(wheel.version.encode(), version.encode())
            target.writestr(zipfile.ZipInfo(name, info.date_time), content)
    return Wheel.of(path)
