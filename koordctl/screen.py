"""The live screen of ``koordctl top``: the node above, the pods below, asked again every interval.

The question is asked in a thread, so keys act while the daemon is slow or gone; then the last picture stays, and a line
says what is wrong.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import click

from koordctl.terminal import Ended, Terminal
from koordctl.views.frame import SORT_KEYS, View, frame
from koordctl.views.top import Picture

_MOVES = {"up": -1, "down": 1, "page up": -10, "page down": 10, "home": -(10**9), "end": 10**9}
_LEAST_WAIT_S = 0.01


class Screen:
    """``read`` makes a picture or raises ClickException. ``picture``: the first one. ``clock``: monotonic seconds."""

    def __init__(
        self,
        terminal: Terminal,
        read: Callable[[], Picture],
        picture: Picture,
        view: View,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._terminal, self._read, self._picture, self._view, self._clock = terminal, read, picture, view, clock
        self._questions: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Picture | str] = queue.SimpleQueue()
        self._is_asking = False

    def run(self) -> None:
        """Runs until q, Ctrl-C, or the end of the terminal or of the process."""
        threading.Thread(target=self._ask, name="ask", daemon=True).start()
        next_s = self._clock() + self._view.interval_s
        try:
            while True:
                self._draw()
                for key in self._terminal.wait(next_s - self._clock()):
                    if not self._press(key):
                        return
                self._take_answers()
                if self._clock() >= next_s:
                    self._question()
                    next_s = max(next_s + self._view.interval_s, self._clock() + _LEAST_WAIT_S)
        except Ended:
            return
        finally:
            self._questions.put(False)

    def _ask(self) -> None:
        """Reads a picture for each question, in a thread of its own."""
        while self._questions.get():
            try:
                self._answers.put(self._read())
            except click.ClickException as error:
                self._answers.put(error.format_message())
            self._terminal.wake()

    def _question(self) -> None:
        """Asks for the next picture, unless a question waits for its answer or the picture is held."""
        if not self._is_asking and not self._view.held:
            self._is_asking = True
            self._questions.put(True)

    def _take_answers(self) -> None:
        while not self._answers.empty():
            answer = self._answers.get()
            self._is_asking = False
            if isinstance(answer, str):
                self._view = replace(self._view, message=answer)
            elif not self._view.held:
                self._picture, self._view = answer, replace(self._view, message="")

    def _draw(self) -> None:
        width, height = self._terminal.size
        self._terminal.show(frame(self._picture, self._view, width, height))

    def _press(self, key: str) -> bool:
        """Does what a key stands for; returns whether to go on."""
        view = self._view
        if key == "interrupt":
            return False
        if view.typing:
            self._view = typed(view, key)
        elif key == "q":
            return False
        elif key in SORT_KEYS:
            self._view = view.sorted_by(SORT_KEYS[key])
        elif key == "/":
            self._view = replace(view, typing=True)
        elif key == "escape":
            self._view = replace(view, filter="", offset=0)
        elif key == "space":
            self._view = replace(view, held=not view.held)
        elif key in _MOVES:
            most = max(0, len(view.pods(self._picture)) - 1)
            self._view = replace(view, offset=min(max(view.offset + _MOVES[key], 0), most))
        return True


def typed(view: View, key: str) -> View:
    """Returns ``view`` after a key that is pressed while the filter is typed."""
    match key:
        case "enter":
            return replace(view, typing=False)
        case "escape":
            return replace(view, typing=False, filter="", offset=0)
        case "backspace":
            return replace(view, filter=view.filter[:-1], offset=0)
        case _ if len(key) == 1 and key.isprintable():
            return replace(view, filter=view.filter + key, offset=0)
        case _:
            return view
