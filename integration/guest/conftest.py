"""Fixtures: image, package and payload once per session; ``guest`` is one booted node per test module."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from integration.guest import image, payload
from integration.guest.__main__ import HUNG
from integration.guest.channel import GuestHung
from integration.guest.guest import Guest, Saved, booted
from integration.guest.image import Image
from integration.packaging import made
from release import deb
from release.run import run
from release.tree import PYTHON
from release.wheels import NAME, Wheel, fetch

pytest.register_assert_rewrite("integration.guest.koordnode", "integration.guest.kubelet")
NEXT_VERSION = "99.0"
FAILURES = pytest.StashKey[list[bool]]()


@dataclass(frozen=True, slots=True)
class Packages:
    """The Debian package of this checkout, and the same code as a later version."""

    current: Path
    following: Path


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that are marked ``soak`` take long and run only with SOAK=1 (``make soak-guest``)."""
    left = [] if os.environ.get("SOAK") else [item for item in items if item.get_closest_marker("soak")]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The guests of a test that fails keep their journals, and the report has their consoles."""
    report = yield
    if report.failed:
        hung = call.excinfo is not None and call.excinfo.errisinstance(GuestHung)
        item.config.stash.setdefault(FAILURES, []).append(hung)
        values = getattr(item, "funcargs", {}).values()
        for guest in {value for value in (getattr(each, "guest", each) for each in values) if isinstance(value, Guest)}:
            guest.save_journal()
            report.sections.append(("the guest", guest.diagnosis()))
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """``HUNG`` if nothing failed but by guests that hung."""
    failures = session.config.stash.get(FAILURES, [])
    if failures and all(failures):
        session.exitstatus = HUNG


@pytest.fixture(scope="session")
def guest_image(real_machine: None) -> Image:
    return image.built()


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    directory = tmp_path_factory.mktemp("packages")
    run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", directory, payload.REPOSITORY])
    ours = Wheel.of(next(directory.glob("*.whl")))
    wheels = fetch(ours.path, [PYTHON], directory / "wheelhouse")
    others = [wheel for wheel in wheels if wheel.name != NAME]
    later = made.renamed(ours, NEXT_VERSION, directory / "later")
    return Packages(deb.build(wheels, directory, xz_level=0), deb.build([later, *others], directory, xz_level=0))


@pytest.fixture(scope="session")
def guest_payload(packages: Packages, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Besides the programs: ``koord.deb`` and, a version later, ``koord-next.deb``."""
    target = tmp_path_factory.mktemp("payload") / "payload.tar"
    payload.write(target, {"koord.deb": packages.current, "koord-next.deb": packages.following})
    return target


@pytest.fixture(scope="session")
def saved_guest(guest_image: Image, guest_payload: Path, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """A booted node with the payload unpacked, and Koord not installed."""
    with booted(guest_image, tmp_path_factory.mktemp("saved"), guest_payload) as running:
        return running.save()


@pytest.fixture(scope="module")
def guest(
    guest_image: Image, guest_payload: Path, saved_guest: Saved, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guest]:
    """One that goes on from there."""
    with booted(guest_image, tmp_path_factory.mktemp("guest"), guest_payload, saved=saved_guest) as running:
        yield running
