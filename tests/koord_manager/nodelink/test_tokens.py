"""What is remembered of tokens: how long, how much, and nothing of the tokens themselves."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import traceback
import weakref
from collections.abc import AsyncIterator

import pytest

from koord.http2.grpc import UNAUTHENTICATED
from koord.http2.server import Refusal
from koord.kube.client import Client
from koord_manager.nodelink.tokens import BAD_S, GOOD_S, TokenReviewer
from tests.koord_manager.nodelink.rig import AGENT, APIServer, authenticated
from tests.kube.support import client


class Token(str):
    """One of which a test can tell when nobody has it any more."""

    __slots__ = ("__weakref__",)


class Reviewed:
    """A reviewer on an API server that knows the token ``good``. ``now_s``: its clock."""

    def __init__(self, api: Client) -> None:
        self.now_s = 1000.0
        self.tokens = TokenReviewer(api, AGENT, lambda _: None, lambda: self.now_s)


@contextlib.asynccontextmanager
async def reviewer() -> AsyncIterator[Reviewed]:
    server = APIServer()
    server.reviews["good"] = authenticated(node_name="n1")
    async with server.serving() as url, client(url) as api:
        yield Reviewed(api)


def refused(tokens: TokenReviewer, token: str) -> Refusal:
    with pytest.raises(Refusal) as caught:
        tokens.known(token)
    return caught.value


async def test_a_thousand_refusals_leave_nothing_behind() -> None:
    async with reviewer() as made:
        with pytest.raises(Refusal):
            await made.tokens.node("bad")
        token = Token("bad")
        kept = weakref.ref(token)
        depths = [len(traceback.extract_tb(refused(made.tokens, token).__traceback__)) for _ in range(1000)]
        assert len(set(depths)) == 1, "each is raised for the first time"
        assert made.tokens.kept == 1
        del token
        await asyncio.sleep(0.01)
        gc.collect()
        assert kept() is None
        assert not [each for each in gc.get_objects() if isinstance(each, Refusal)]


async def test_a_refusal_says_the_same_each_time() -> None:
    async with reviewer() as made:
        with pytest.raises(Refusal) as first:
            await made.tokens.node("bad")
        again = refused(made.tokens, "bad")
        assert (again.code, again.message) == (first.value.code, first.value.message)
        assert again.code == UNAUTHENTICATED


@pytest.mark.parametrize(("token", "lifetime_s"), [("good", GOOD_S), ("bad", BAD_S)])
async def test_what_is_too_old_goes_with_the_next_call(token: str, lifetime_s: float) -> None:
    async with reviewer() as made:
        with contextlib.suppress(Refusal):
            await made.tokens.node(token)
        made.now_s += lifetime_s - 1
        with contextlib.suppress(Refusal):
            assert made.tokens.known(token) == "n1"
        assert made.tokens.kept == 1
        made.now_s += 1
        assert made.tokens.known("another") is None
        assert made.tokens.kept == 0
        assert made.tokens.known(token) is None


async def test_refused_tokens_push_out_no_good_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("koord_manager.nodelink.tokens.MAX_KEPT", 2)
    async with reviewer() as made:
        await made.tokens.node("good")
        for number in range(4):
            with pytest.raises(Refusal):
                await made.tokens.node(f"bad-{number}")
        assert made.tokens.kept == 3
        assert made.tokens.known("good") == "n1"
        assert made.tokens.known("bad-0") is None
