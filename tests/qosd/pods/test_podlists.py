"""Who lists the pods: kubelet unless it is not asked, refuses or is not trusted, then a substitute; kubelet comes first
each time."""

from __future__ import annotations

import pytest

from koord.model.core import ObjectList
from qosd.pods.http import FetchError
from qosd.pods.kubelet import KubeletPod
from qosd.pods.podlists import PodLists

OF_KUBELET, OF_API = ObjectList((KubeletPod(uid="k"),)), ObjectList((KubeletPod(uid="a"),))
URL = "https://127.0.0.1:10250/pods"
UNTRUSTED = FetchError(URL, "certificate verify failed", is_untrusted=True)


class Lister:
    """Answers ``says``, or raises it."""

    def __init__(self, address: str, says: ObjectList[KubeletPod] | FetchError) -> None:
        self.address, self.says, self.asked = address, says, 0

    async def pods(self) -> ObjectList[KubeletPod]:
        self.asked += 1
        if isinstance(self.says, FetchError):
            raise self.says
        return self.says


def failing(status: int, why: str = "no") -> FetchError:
    return FetchError(URL, why, status)


@pytest.mark.parametrize("status", [0, 404, 500, 503])
async def test_a_kubelet_that_is_away_is_nobody_s_to_replace(status: int) -> None:
    lists = PodLists(Lister(URL, failing(status)))
    lists.substitute = substitute = Lister("the API server", OF_API)
    with pytest.raises(FetchError) as caught:
        await lists.pods()
    assert (caught.value.status, substitute.asked, lists.problem) == (status, 0, "")


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refusal_brings_the_substitute_and_is_told(status: int) -> None:
    kubelet = Lister(URL, failing(status))
    lists = PodLists(kubelet)
    with pytest.raises(FetchError):
        await lists.pods()
    lists.substitute = Lister("the API server", OF_API)
    assert await lists.pods() is OF_API
    assert f"kubelet refuses its pod list (HTTP {status}), so the API server lists the pods" in lists.problem
    kubelet.says = OF_KUBELET
    assert await lists.pods() is OF_KUBELET
    assert lists.problem == ""


async def test_a_certificate_that_is_not_trusted_brings_the_substitute_and_is_told() -> None:
    kubelet = Lister(URL, UNTRUSTED)
    lists = PodLists(kubelet)
    lists.substitute = Lister("the API server", OF_API)
    assert await lists.pods() is OF_API
    assert "is not trusted (certificate verify failed), so the API server lists the pods" in lists.problem
    assert "--kubelet-insecure-tls" in lists.problem
    kubelet.says = OF_KUBELET
    assert await lists.pods() is OF_KUBELET
    assert lists.problem == ""


async def test_without_trust_both_that_fail_are_told() -> None:
    lists = PodLists(Lister(URL, UNTRUSTED))
    lists.substitute = Lister("the API server", FetchError("the API server's pods of node n1", "are not known yet"))
    with pytest.raises(FetchError) as caught:
        await lists.pods()
    expected = "certificate verify failed, and the API server's pods of node n1: are not known yet"
    assert (str(caught.value), caught.value.is_untrusted) == (f"{URL}: {expected}", True)


async def test_where_both_fail_both_are_told() -> None:
    lists = PodLists(Lister(URL, failing(403)))
    lists.substitute = Lister("the API server", FetchError("the API server's pods of node n1", "pods: 403 Forbidden"))
    with pytest.raises(FetchError) as caught:
        await lists.pods()
    assert str(caught.value) == f"{URL}: HTTP 403, and the API server's pods of node n1: pods: 403 Forbidden"


async def test_without_a_refusal_the_substitute_is_left_alone() -> None:
    lists = PodLists(Lister(URL, OF_KUBELET))
    lists.substitute = substitute = Lister("the API server", OF_API)
    assert await lists.pods() is OF_KUBELET
    assert (substitute.asked, lists.address) == (0, URL)


async def test_where_kubelet_is_not_asked_the_substitute_lists_and_nothing_is_wrong() -> None:
    lists = PodLists(None)
    with pytest.raises(FetchError, match="nobody is asked for them yet"):
        await lists.pods()
    lists.substitute = Lister("the API server", OF_API)
    assert await lists.pods() is OF_API
    assert (lists.address, lists.problem) == ("the API server", "")
