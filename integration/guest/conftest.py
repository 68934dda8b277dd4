"""Fixtures: the image and the payload once per session; ``guest`` is one booted node per test module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.guest import image, payload
from integration.guest.guest import Guest, booted
from integration.guest.image import Image


@pytest.fixture(scope="session")
def guest_image(real_machine: None) -> Image:
    return image.built()


@pytest.fixture(scope="session")
def guest_payload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("payload") / "payload.tar"
    payload.write(target, {})
    return target


@pytest.fixture(scope="module")
def guest(guest_image: Image, guest_payload: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    """A booted node with the payload unpacked, and Koord not installed."""
    with booted(guest_image, tmp_path_factory.mktemp("guest"), guest_payload) as running:
        running.unpack_payload()
        yield running
