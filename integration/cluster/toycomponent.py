"""A component in the fewest lines: all that one needs beside its frame. Its leader greets each pod with an Event."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from koord.cluster import frame, program
from koord.cluster.frame import Component, Frame
from koord.cluster.options import ComponentOptions
from koord.kube.informer import Informer, as_read
from koord.kube.kind import POD
from koord.kube.recorder import EventType, Subject
from koord.kube.stream import EventStream
from koord.service.options import Program, Style, option

NAME = "koord-toy"


@dataclass(frozen=True, slots=True)
class Options(ComponentOptions):
    linger: float = option(0.0, "seconds between the end of leadership and that of the process", metavar="SECONDS")


PROGRAM = Program(NAME, "Greets pods.", Options, Style.GO)


class Toy(Component):
    def __init__(self, frame: Frame, options: Options) -> None:
        self._recorder, self._linger_s, self._changes = frame.recorder, options.linger, EventStream()
        super().__init__([Informer(frame.client, POD, time.monotonic, stream=self._changes, transform=as_read)])

    async def lead(self) -> None:
        while True:
            for change in await self._changes.take(100):
                if change.before is None and change.after is not None:
                    self._recorder.record(Subject.of(POD, change.after.metadata), EventType.NORMAL, "Greeted", "hello")

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        yield
        await asyncio.sleep(self._linger_s)


def load(arguments: Sequence[str]) -> program.Work:
    options = PROGRAM.load(PROGRAM.parse(arguments))
    program.set_up_log(options.effective_log_level, ())
    return frame.run(NAME, NAME, options, os.environ, lambda made: Toy(made, options))


if __name__ == "__main__":
    program.run(NAME, load)
