"""koord-manager's pages, with all its figures."""

from __future__ import annotations

import pytest

from koord.kube.client import Client
from koord_manager.manager import Manager
from koord_manager.metrics import Pages
from koord_manager.options import PROGRAM
from tests.kube.server import Server
from tests.kube.support import client

LINES = (
    "koord_manager_leader 0.0",
    "koord_manager_api_retries 0.0",
    'koord_manager_work_queue_length{controller="noderesource"} 0.0',
    'koord_manager_work_handled{controller="nodeslo"} 0.0',
    'koord_manager_cached_objects{kind="Pod"} 0.0',
    'koord_manager_webhook_duration_seconds_count{path="/mutate-pod",result="allowed"} 1.0',
)


async def made(api: Client) -> Manager:
    return Manager(api, PROGRAM.load(PROGRAM.parse([])), {"HOSTNAME": "manager-a"})


async def test_every_figure_is_on_the_page() -> None:
    server = Server()
    async with server.serving() as url, client(url) as api:
        figures = (await made(api)).figures
        figures.webhook_duration_seconds["/mutate-pod", "allowed"].observe(0.001)

        async def ready() -> str:
            return ""

        page = await Pages(figures, ready).by_path["/metrics"]()  # type: ignore[misc]
    text = page.body.decode()
    for line in LINES:
        assert line in text


@pytest.mark.parametrize(("sentence", "status"), [("", 200), ("pods are not known yet", 503)])
async def test_readiness(sentence: str, status: int) -> None:
    server = Server()
    async with server.serving() as url, client(url) as api:

        async def unready() -> str:
            return sentence

        page = await Pages((await made(api)).figures, unready).by_path["/readyz"]()  # type: ignore[misc]
    assert page.status == status
    assert sentence in page.body.decode()
