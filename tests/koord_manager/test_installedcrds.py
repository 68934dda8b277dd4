"""What a replica says of the CustomResourceDefinitions that it finds installed."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from koord_manager.installedcrds import DIRECTORIES, InstalledCRDs
from tests.kube.server import Fault, Server
from tests.kube.support import client

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SOURCE = DIRECTORIES[1]
NODE_SLO = "nodeslos.slo.koordinator.sh"
OURS: dict[str, Any] = {
    each["metadata"]["name"]: each for each in (yaml.safe_load(file.read_bytes()) for file in SOURCE.glob("*.yaml"))
}


async def compared(server: Server, directories: tuple[Path, ...] = (SOURCE,)) -> InstalledCRDs:
    async with server.serving(), client(server.url, tries=1) as api:
        crds = InstalledCRDs(api, directories)
        await crds.compare()
    return crds


def installed(**changed: Any) -> Server:
    """Ours, some of them changed; None: not installed."""
    server = Server()
    for name, definition in {**OURS, **changed}.items():
        if definition is not None:
            members = {key: value for key, value in definition.items() if key != "metadata"}
            server.put(CRDS, "", name, **members)
    return server


def older() -> dict[str, Any]:
    """NodeSLO without two of its strategies."""
    definition: dict[str, Any] = deepcopy(OURS[NODE_SLO])
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    for name in ("systemStrategy", "hostApplications"):
        del spec[name]
    return definition


async def test_our_own_are_complete(caplog: pytest.LogCaptureFixture) -> None:
    crds = await compared(installed())
    assert crds.faults == dict.fromkeys(OURS, 0)
    assert not caplog.text


async def test_what_another_releases_lacks_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    crds = await compared(installed(**{NODE_SLO: older()}))
    assert {name: count for name, count in crds.faults.items() if count} == {NODE_SLO: 2}
    (record,) = caplog.records
    assert record.getMessage() == (
        f"The installed CustomResourceDefinition {NODE_SLO} drops spec.hostApplications, spec.systemStrategy. "
        "It is used as far as it goes."
    )


async def test_one_that_is_not_installed_is_named(caplog: pytest.LogCaptureFixture) -> None:
    crds = await compared(installed(**{NODE_SLO: None}))
    assert NODE_SLO not in crds.faults and len(crds.faults) == len(OURS) - 1
    assert f"CustomResourceDefinition {NODE_SLO} is not installed: kubectl apply -f manifests/crds" in caplog.text


async def test_who_may_not_read_them_says_so_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    server = installed()
    server.faults = [Fault("get", status=403, reason="Forbidden")]
    crds = await compared(server)
    assert len(crds.faults) == len(OURS) - 1
    assert "cannot be compared: 403 Forbidden" in caplog.text


@pytest.mark.parametrize("text", [None, "{", "kind: List\n", "- a\n"])
async def test_without_definitions_of_its_own_nothing_is_compared(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str | None
) -> None:
    directory = tmp_path / "crds"
    if text is not None:
        directory.mkdir()
        (directory / "a.yaml").write_text(text)
    assert (await compared(installed(), (tmp_path / "absent", directory))).faults == {}
    assert "are not compared with this release's: " in caplog.text
