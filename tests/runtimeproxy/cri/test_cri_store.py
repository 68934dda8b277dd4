"""The cache: bounded, in step with Remove*, and honest about sandboxes that may have been edited."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runtimeproxy.cri.store import ENTRY_BYTES, ContainerEntry, PodEntry, Store
from runtimeproxy.hooks.edits import CGROUP_PARENT, Slot


def pod(size: int = 10, **more: object) -> PodEntry:
    return PodEntry("uid", "ns", b"x" * size, **more)  # type: ignore[arg-type]


def container(pod_id: str = "p", size: int = 10) -> ContainerEntry:
    return ContainerEntry(pod_id, b"x" * size)


def test_removing_what_is_not_there_is_nothing() -> None:
    store = Store()
    store.remove_pod("p")
    store.remove_container("c")
    assert store.stored_bytes == 0


def test_containers_go_with_their_sandbox() -> None:
    store = Store()
    store.put_pod("p", pod())
    store.put_container("c", container("p"))
    store.put_container("d", container("q"))
    store.remove_pod("p")
    assert (store.pod("p"), store.container("c")) == (None, None)
    assert store.container("d") is not None


def test_the_oldest_are_forgotten_first_and_containers_before_pods() -> None:
    store = Store(max_bytes=3 * (ENTRY_BYTES + 10))
    store.put_pod("p", pod())
    for name in "abc":
        store.put_container(name, container())
    assert [store.container(name) is not None for name in "abc"] == [False, True, True]
    assert store.pod("p") is not None


def test_one_entry_over_the_bound_is_not_kept() -> None:
    store = Store(max_bytes=1000)
    store.put_container("c", container(size=2000))
    assert (store.sizes, store.stored_bytes) == ((0, 0), 0)


def test_creates_are_held_until_the_runtime_was_asked() -> None:
    store = Store()
    assert store.hold_creates
    store.listed([])
    assert not store.hold_creates


def test_creates_are_held_for_sandboxes_of_a_predecessor_until_they_are_gone() -> None:
    store = Store()
    store.put_pod("new", pod())
    store.listed([("old", pod(rebuilt=True)), ("new", pod(rebuilt=True))])
    assert store.hold_creates
    store.remove_pod("old")
    assert not store.hold_creates


def test_creates_are_held_for_an_edited_sandbox_even_if_it_was_forgotten() -> None:
    store = Store(max_bytes=1000)
    store.listed([])
    store.put_pod("p", pod(edits={Slot(CGROUP_PARENT): "/x"}))
    store.put_pod("q", pod(size=600))
    assert store.pod("p") is None
    assert store.hold_creates
    store.remove_pod("p")
    store.remove_pod("q")
    assert not store.hold_creates


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
    store = Store(max_bytes=2000)
    for step, key, size in done:
        if step == "put_pod":
            store.put_pod(key, pod(size))
        elif step == "put_container":
            store.put_container(key, container("a", size))
        else:
            getattr(store, step)(key)
        held = [entry for name in "abcd" for entry in (store.pod(name), store.container(name)) if entry]
        assert store.stored_bytes == sum(ENTRY_BYTES + len(entry.request) for entry in held) <= 2000


def test_a_list_takes_away_what_it_lacks_and_was_known_when_it_was_asked_for() -> None:
    store = Store()
    store.put_pod("gone", PodEntry("", "", b"", edits={Slot("annotations", "a"): "b"}))
    store.put_container("c", ContainerEntry("gone", b""))
    store.listing()
    store.put_pod("new", PodEntry("", "", b""))
    store.listed([])
    assert ([pod_id for pod_id, _ in store.pods()], store.sizes, store.hold_creates) == (["new"], (1, 0), False)


def test_a_list_brings_nothing_back_that_was_removed_since_it_was_asked_for() -> None:
    store = Store()
    store.put_pod("p", PodEntry("", "", b""))
    store.listing()
    store.remove_pod("p")
    store.listed([("p", PodEntry("", "", b"", rebuilt=True)), ("old", PodEntry("", "", b"", rebuilt=True))])
    assert [pod_id for pod_id, _ in store.pods()] == ["old"]
