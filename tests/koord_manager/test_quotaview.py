"""ElasticQuotas between what was let pass and its event: what counts for how long, and what never does."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from koord.kube.kind import Key
from koord.model import core
from koord.model.elasticquota import ElasticQuota
from koord_manager.quotaview import MAX_PASSED, PASSED_S, QuotaPods, QuotaView
from tests.admission.quotaobjects import Document, quota, request


class View(QuotaView):
    """With a clock that tests set."""

    def __init__(self) -> None:
        self.now_s = 0.0
        super().__init__(lambda: self.now_s)

    def put(self, document: Document) -> None:
        metadata = document["metadata"]
        read = core.read(ElasticQuota, msgspec.json.encode(document))
        self.take(Key(metadata["namespace"], metadata["name"]), read)

    def minima(self) -> dict[str, int]:
        return {name: each.minimum["cpu"] for name, each in self.tree().quotas.items()}


@pytest.fixture
def view() -> View:
    return View()


def test_what_was_let_pass_counts_at_once_until_its_time_is_over(view: View) -> None:
    view.put(quota("a", "1"))
    view.take_passed(request("CREATE", quota("b", "2")))
    view.take_passed(request("UPDATE", quota("a", "3"), quota("a", "1")))
    assert view.minima() == {"a": 3000, "b": 2000}
    view.now_s = PASSED_S - 0.1
    assert view.minima() == {"a": 3000, "b": 2000}
    view.now_s = PASSED_S
    assert view.minima() == {"a": 1000}, "another webhook refused both"


def test_with_its_event_the_api_servers_counts(view: View) -> None:
    view.take_passed(request("CREATE", quota("b", "2")))
    view.put(quota("b", "2"))
    view.put(quota("b", "5"))
    assert view.minima() == {"b": 5000}


def test_an_event_from_before_takes_nothing_away(view: View) -> None:
    view.take_passed(request("UPDATE", quota("a", "3"), quota("a", "1")))
    view.put(quota("a", "1", used={"cpu": "1"}))
    assert view.minima() == {"a": 3000}


def test_a_deletion_counts_too(view: View) -> None:
    view.put(quota("a", "1"))
    view.take_passed(request("DELETE", None, quota("a", "1")))
    assert view.minima() == {}
    view.take_passed(request("CREATE", quota("a", "2")))
    assert view.minima() == {"a": 2000}
    view.take(Key("teams", "a"), None)
    view.now_s = PASSED_S
    assert view.minima() == {}


@pytest.mark.parametrize(
    "passed",
    [
        request("CREATE", quota("b"), is_dry_run=True),
        replace(request("CREATE", quota("b")), resource="pods"),
        replace(request("UPDATE", quota("b")), subresource="status"),
        request("CONNECT", None),
    ],
    ids=["dry run", "another kind", "a part", "another verb"],
)
def test_what_counts_for_nothing(view: View, passed: Any) -> None:
    """Koordinator counts dry runs."""
    view.take_passed(passed)
    assert view.minima() == {}


def test_what_the_scheduler_writes_makes_no_other_tree(view: View) -> None:
    view.put(quota("a", "1"))
    before = view.tree()
    written = quota("a", "1", used={"cpu": "7"}, annotations={"runtime": '{"cpu":"7"}'})
    view.take_passed(request("UPDATE", written, quota("a", "1")))
    view.put(written)
    assert view.tree() is before


def test_what_is_remembered_is_bounded(view: View) -> None:
    for number in range(MAX_PASSED + 10):
        view.take_passed(request("CREATE", quota(f"q{number}")))
    assert len(view.tree().quotas) == MAX_PASSED


def test_pods_for_another_process() -> None:
    pods = QuotaPods({"a": ("x/1", "x/2")}, {"x": ("x/1", "x/3"), "y": ("y/1",)})
    assert pods("a", ()) == ("x/1", "x/2")
    assert pods("b", ("x", "y")) == ("x/1", "x/3")
    assert pods("b", ("y",)) == ("y/1",)
    assert pods("b", ()) == ()
