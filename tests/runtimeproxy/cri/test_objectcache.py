"""The cache: bounded, in step with Remove*, and honest about sandboxes that may have been edited."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runtimeproxy.cri.objectcache import ENTRY_BYTES, ContainerEntry, ObjectCache, PodEntry
from runtimeproxy.hooks.edits import CGROUP_PARENT, Slot


def pod(size: int = 10, **more: object) -> PodEntry:
    return PodEntry("uid", "ns", b"x" * size, **more)  # type: ignore[arg-type]


def container(pod_id: str = "p", size: int = 10) -> ContainerEntry:
    return ContainerEntry(pod_id, b"x" * size)


def test_removing_what_is_not_there_is_nothing() -> None:
    cache = ObjectCache()
    cache.remove_pod("p")
    cache.remove_container("c")
    assert cache.stored_bytes == 0


def test_containers_go_with_their_sandbox() -> None:
    cache = ObjectCache()
    cache.put_pod("p", pod())
    cache.put_container("c", container("p"))
    cache.put_container("d", container("q"))
    cache.remove_pod("p")
    assert (cache.pod("p"), cache.container("c")) == (None, None)
    assert cache.container("d") is not None


def test_the_oldest_are_forgotten_first_and_containers_before_pods() -> None:
    cache = ObjectCache(max_bytes=3 * (ENTRY_BYTES + 10))
    cache.put_pod("p", pod())
    for name in "abc":
        cache.put_container(name, container())
    assert [cache.container(name) is not None for name in "abc"] == [False, True, True]
    assert cache.pod("p") is not None


def test_one_entry_over_the_bound_is_not_kept() -> None:
    cache = ObjectCache(max_bytes=1000)
    cache.put_container("c", container(size=2000))
    assert (cache.sizes, cache.stored_bytes) == ((0, 0), 0)


def test_creates_are_held_until_the_runtime_was_asked() -> None:
    cache = ObjectCache()
    assert cache.hold_creates
    cache.listed([])
    assert not cache.hold_creates


def test_creates_are_held_for_sandboxes_of_a_predecessor_until_they_are_gone() -> None:
    cache = ObjectCache()
    cache.put_pod("new", pod())
    cache.listed([("old", pod(rebuilt=True)), ("new", pod(rebuilt=True))])
    assert cache.hold_creates
    cache.remove_pod("old")
    assert not cache.hold_creates


def test_creates_are_held_for_an_edited_sandbox_even_if_it_was_forgotten() -> None:
    cache = ObjectCache(max_bytes=1000)
    cache.listed([])
    cache.put_pod("p", pod(edits={Slot(CGROUP_PARENT): "/x"}))
    cache.put_pod("q", pod(size=600))
    assert cache.pod("p") is None
    assert cache.hold_creates
    cache.remove_pod("p")
    cache.remove_pod("q")
    assert not cache.hold_creates


steps = st.lists(
    st.tuples(
        st.sampled_from(["put_pod", "put_container", "remove_pod", "remove_container"]),
        st.sampled_from("abcd"),
        st.integers(0, 500),
    ),
    max_size=30,
)


@given(steps)
def test_its_size_is_the_sum_of_its_entries_and_within_the_bound(done: list[tuple[str, str, int]]) -> None:
    cache = ObjectCache(max_bytes=2000)
    for step, key, size in done:
        if step == "put_pod":
            cache.put_pod(key, pod(size))
        elif step == "put_container":
            cache.put_container(key, container("a", size))
        else:
            getattr(cache, step)(key)
        held = [entry for name in "abcd" for entry in (cache.pod(name), cache.container(name)) if entry]
        assert cache.stored_bytes == sum(ENTRY_BYTES + len(entry.request) for entry in held) <= 2000


def test_a_list_takes_away_what_it_lacks_and_was_known_when_it_was_asked_for() -> None:
    cache = ObjectCache()
    cache.put_pod("gone", PodEntry("", "", b"", edits={Slot("annotations", "a"): "b"}))
    cache.put_container("c", ContainerEntry("gone", b""))
    cache.listing()
    cache.put_pod("new", PodEntry("", "", b""))
    cache.listed([])
    assert ([pod_id for pod_id, _ in cache.pods()], cache.sizes, cache.hold_creates) == (["new"], (1, 0), False)


def test_a_list_brings_nothing_back_that_was_removed_since_it_was_asked_for() -> None:
    cache = ObjectCache()
    cache.put_pod("p", PodEntry("", "", b""))
    cache.listing()
    cache.remove_pod("p")
    cache.listed([("p", PodEntry("", "", b"", rebuilt=True)), ("old", PodEntry("", "", b"", rebuilt=True))])
    assert [pod_id for pod_id, _ in cache.pods()] == ["old"]
