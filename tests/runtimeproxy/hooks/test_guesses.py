"""What a server said last is tried on while it is asked again, and counts only if it says the same."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from koord.pb.hooks import api_pb2 as hooks
from runtimeproxy.hooks.chain import Agreed, Chain, Question
from runtimeproxy.hooks.edits import ANNOTATIONS, ENVS, RESOURCE_FIELDS, Slot
from runtimeproxy.hooks.guards import Guard
from runtimeproxy.hooks.messages import CONTAINER
from runtimeproxy.hooks.stages import Stage
from runtimeproxy.intercept import Refuse
from tests.runtimeproxy.hooks.doubles import PRESENCE, Clock, Recorder, server

OWNED = frozenset({ANNOTATIONS, ENVS, *RESOURCE_FIELDS})
SHARES = Slot("cpu_shares")
Answer = tuple[bytes, Mapping[bytes, bytes]]


def question(shares: int) -> Question:
    request = hooks.ContainerResourceHookRequest(
        container_annotations={"note": "x"},
        container_resources=hooks.LinuxContainerResources(cpu_shares=shares, cpuset_cpus="0-7"),
    )
    return Question(Stage.PRE_CREATE, request.SerializeToString(), CONTAINER, Guard(OWNED), lambda: "container ns/p/c")


def answer(
    presence: Mapping[bytes, bytes] = PRESENCE, annotations: Mapping[str, str] | None = None, **fields: int | str
) -> Answer:
    said = hooks.ContainerResourceHookResponse(container_annotations=annotations or {})
    said.container_resources.SetInParent()
    for name, value in fields.items():
        setattr(said.container_resources, name, value)
    return said.SerializeToString(), presence


class Told:
    """The answers that a server gives, one after the other, and the guesses that were made meanwhile."""

    def __init__(self, answers: list[Answer]) -> None:
        self._answers = iter(answers)
        self.recorder, self.guesses = Recorder(), list[Agreed]()
        self._chain = Chain((server(self._handle, self.recorder),), self.recorder, Clock())

    async def _handle(self, path: str, message: bytes) -> Answer:
        return next(self._answers)

    async def ask(self, shares: int) -> Agreed:
        agreed = await self._chain.ask(question(shares), None, self.guesses.append)
        assert isinstance(agreed, Agreed)
        return agreed

    async def ask_plainly(self, shares: int) -> Agreed | Refuse:
        return await self._chain.ask(question(shares), None)


async def test_a_guess_that_holds_is_what_was_agreed() -> None:
    told = Told([answer(cpu_shares=7), answer(cpu_shares=7), answer(cpu_shares=9), answer(cpu_shares=9)])
    agreed = [await told.ask(2) for _ in range(4)]
    assert [each.edits for each in agreed] == [{SHARES: 7}, {SHARES: 7}, {SHARES: 9}, {SHARES: 9}]
    assert [each.edits for each in told.guesses] == [{SHARES: 7}, {SHARES: 7}, {SHARES: 9}]
    assert [told.guesses[0] is agreed[1], told.guesses[1] is agreed[2], told.guesses[2] is agreed[3]] == [
        True,
        False,
        True,
    ]


async def test_the_same_words_mean_something_else_in_another_form() -> None:
    told = Told([answer(cpu_shares=0), answer({}, cpu_shares=0)])
    assert [(await told.ask(2)).edits for _ in range(2)] == [{SHARES: 0}, {}]


async def test_what_is_refused_is_counted_once_for_each_answer() -> None:
    kubelets = {"io.kubernetes.container.hash": "2"}
    told = Told([answer(annotations=kubelets)] * 3)
    for _ in range(3):
        assert (await told.ask(2)).edits == {}
    assert told.recorder.counted.count(("guard", "key")) == 3


ANSWERS = st.builds(
    answer,
    st.sampled_from([PRESENCE, {}]),
    st.sampled_from([None, {"io.kubernetes.x": "1"}, {"note": "y"}, {"note": "x"}]),
) | st.builds(
    answer,
    st.sampled_from([PRESENCE, {}]),
    cpu_shares=st.integers(-2, 3),
    cpuset_cpus=st.sampled_from(["", "0-7", "1", "x"]),
)


@settings(max_examples=60)
@given(st.lists(st.tuples(ANSWERS, st.integers(0, 3)), min_size=2, max_size=6))
def test_guessing_changes_nothing(steps: list[tuple[Answer, int]]) -> None:
    async def both() -> None:
        guessing, plain = (Told([said for said, _ in steps]) for _ in range(2))
        for _, shares in steps:
            assert await guessing.ask(shares) == await plain.ask_plainly(shares)
        assert guessing.recorder.counted == plain.recorder.counted

    asyncio.run(both())
