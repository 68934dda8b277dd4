"""``koordctl get quotas`` and ``explain quota``: through the command line."""

from __future__ import annotations

import json
from pathlib import Path

from koord.model.schedulerpages import QUOTA_PAGE, QuotaAmounts, QuotaPage
from koord.service.statusserver import Page
from koordctl.exits import OK
from tests.koordctl.cluster.test_scheduler import FOLLOWER, scheduler
from tests.koordctl.clusters import Cluster
from tests.scheduling.quotaobjects import PREFIX, document

QUOTAS = "/apis/scheduling.sigs.k8s.io/v1alpha1/elasticquotas"
PAGE = QuotaPage(
    *("train", "default", "ml", "", True, "", ("train-a", "train-b"), 3),
    amounts=(
        QuotaAmounts(
            "cpu", "20", "40", "60", "41", "40", True, ("the tree: 100 = 100 of all nodes", "train: 40 of 60")
        ),
        QuotaAmounts("memory", "0", "", "1Gi", "1Gi"),
    ),
)


async def explained(cluster: Cluster, directory: Path, page: object, *arguments: str) -> tuple[int, str, str]:
    async with scheduler({QUOTA_PAGE: page}) as port:
        return await cluster.run(directory, "explain", "quota", "train", f"--scheduler=127.0.0.1:{port}", *arguments)


async def test_why_a_quota_may_use_what_it_may_use(cluster: Cluster, tmp_path: Path) -> None:
    code, out, err = await explained(cluster, tmp_path, PAGE)
    assert code == OK, err
    assert out.splitlines() == [
        "default/train, below ml: 3 pods of its own are on nodes",
        "  its children: train-a, train-b",
        "RESOURCE  MIN  MAX  REQUEST  USED  RUNTIME",
        "cpu       20   40   60       41    40",
        "memory    0    -    1Gi      1Gi   -",
        "why it may use 40 cpu, and uses more:",
        "  the tree: 100 = 100 of all nodes",
        "  train: 40 of 60",
    ]
    _, out, _ = await explained(cluster, tmp_path, PAGE, "-o", "json")
    assert json.loads(out)["amounts"][0]["runtime"] == "40"


async def test_a_quota_that_cannot_be_asked_about(cluster: Cluster, tmp_path: Path) -> None:
    missing = Page(404, b'{"message":"there is no quota train"}\n', "application/json")
    for page, why in ((FOLLOWER, "the instance is not leader"), (missing, "there is no quota train")):
        code, _, err = await explained(cluster, tmp_path, page)
        assert code != OK and why in err


async def test_quotas_as_the_api_server_has_them(cluster: Cluster, tmp_path: Path) -> None:
    said = {"request": '{"cpu":"60"}', "runtime": "{"}
    for name, written in (("train", said), ("other", {})):
        made = document(name, "20", "40", annotations=written, parent="ml")
        cluster.server.put(QUOTAS, "default", name, metadata=made["metadata"], spec=made["spec"])
    code, out, err = await cluster.run(tmp_path, "get", "quotas")
    assert code == OK, err
    assert out.splitlines() == [
        "NAME   NAMESPACE  PARENT  MIN     MAX     REQUEST  USED  RUNTIME",
        "other  default    ml      cpu=20  cpu=40  -        -     -",
        "train  default    ml      cpu=20  cpu=40  cpu=60   -     {",
    ]
    code, _, err = await cluster.run(tmp_path, "get", "quotas", "gone")
    assert code != OK and "there is no ElasticQuota 'gone'" in err
    _, out, _ = await cluster.run(tmp_path, "get", "elasticquotas", "train", "-o", "json")
    assert json.loads(out)["metadata"]["annotations"][f"{PREFIX}request"] == '{"cpu":"60"}'
