"""koord-manager's pages, with all its figures."""

from __future__ import annotations

from koord.cluster import pages
from koord.cluster.frame import Frame
from koord.kube.client import Client
from koord.model.nodelink import LEASE_NAME
from koord_manager.manager import Manager
from koord_manager.metrics import PREFIX
from koord_manager.options import NAME, PROGRAM
from tests.kube.server import Server
from tests.kube.support import client

LINES = (
    "koord_manager_leader 0.0",
    "koord_manager_api_retries 0.0",
    'koord_manager_work_queue_length{controller="noderesource"} 0.0',
    'koord_manager_work_handled{controller="nodeslo"} 0.0',
    'koord_manager_webhook_duration_seconds_count{path="/mutate-pod",result="allowed"} 1.0',
)


def made(api: Client) -> Manager:
    options = PROGRAM.load(PROGRAM.parse([]))
    return Manager(Frame(api, NAME, LEASE_NAME, options, {"HOSTNAME": "manager-a"}), options)


async def ready() -> str:
    return ""


async def test_every_figure_is_on_the_page() -> None:
    server = Server()
    async with server.serving() as url, client(url) as api:
        figures = made(api).metrics
        figures.webhook_duration_seconds["/mutate-pod", "allowed"].observe(0.001)
        page = await pages.makers({PREFIX: figures}, ready)["/metrics"]()  # type: ignore[misc]
    text = page.body.decode()
    for line in LINES:
        assert line in text
