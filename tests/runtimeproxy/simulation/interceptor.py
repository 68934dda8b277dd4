"""An interceptor whose answers come when the scheduler says so: unedited, edited, refused, raised, or never."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from runtimeproxy import intercept
from runtimeproxy.intercept import Forward, Refuse, StreamPlan, Treatment
from tests.runtimeproxy.simulation.call import HOLD, PASS, REWRITE, TAP, Call, Method, check, rewritten
from tests.runtimeproxy.simulation.dice import Dice
from tests.support.simloop import SimLoop

METHODS = (
    Method(b"/model.Service/Pass", PASS),
    Method(b"/model.Service/Pass2", PASS),
    Method(b"/model.Service/Tap", TAP),
    Method(b"/model.Service/TapAnswer", TAP, wants_answer=True),
    Method(b"/model.Service/Rewrite", REWRITE),
    Method(b"/model.Service/Hold", HOLD),
    Method(b"/model.Service/HoldAnswer", HOLD, wants_answer=True),
    Method(b"/model.Service/HoldFail", HOLD, fail_closed=True),
)
_PLANS = {
    method.path.decode(): StreamPlan(Treatment(method.treatment), method.wants_answer, method.fail_closed)
    for method in METHODS
}
Answer = Forward | Refuse


class InjectedError(RuntimeError):
    """What an interceptor of ours must never raise, and may."""


@dataclass(slots=True, eq=False)
class Question:
    call: Call
    message: bytes
    answer: asyncio.Future[Answer]


class SimInterceptor:
    def __init__(self, loop: SimLoop, calls: list[Call], dice: Dice) -> None:
        self.version = 0
        self.prompt = True  # some answers are given without waiting
        self._questions: dict[int, Question] = {}
        self.edited = self.raised = self.asked = self.forgotten = self.rewrites = 0
        self._loop, self._calls, self._dice = loop, calls, dice

    # Interceptor

    def plan(self, path: str) -> StreamPlan:
        return _PLANS[path]

    async def request(self, call: intercept.Call, message: bytes) -> Answer:
        model = self._model(call, message)
        check(model.method.treatment == HOLD, f"call {model.number} was asked about, and is not to be held")
        check(not model.asked, f"call {model.number} was asked about twice")
        check(not model.reset_at_runtime, f"call {model.number} was asked about, and was reset before")
        model.asked = True
        self.asked += 1
        if self.prompt and self._dice.one_in(6):
            return self._decide(model, message)
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._questions[model.number] = Question(model, message, future)
        try:
            return await future
        finally:
            self._questions.pop(model.number, None)

    def tapped(self, call: intercept.Call, message: bytes) -> None:
        model = self._model(call, message)
        faulty = isinstance(model.verdict, Exception)
        check(model.method.treatment == TAP or faulty, f"call {model.number} was not to be tapped")
        check(not model.tapped, f"call {model.number} was tapped twice")
        model.tapped = True

    def answered(self, call: intercept.Call, status: int, message: bytes | None) -> None:
        model = call.note
        if not isinstance(model, Call):
            return  # never shown to us, for want of budget
        check(not model.told, f"call {model.number}: its answer was told twice")
        model.told = True
        if message is not None:
            check(model.method.wants_answer and status == 0, f"call {model.number}: its answer was not asked for")
            check(message == model.answer_body[5:], f"call {model.number}: another answer was told than given")

    def rewritten(self, path: str, message: bytes) -> bytes:
        check(path.encode() == b"/model.Service/Rewrite", f"the answer of {path} was not to be rewritten")
        self.rewrites += 1
        return message if self._dice.one_in(4) else rewritten(message)

    def forget(self) -> None:
        self.forgotten += 1

    # the scheduler's

    @property
    def pending(self) -> dict[int, Question]:
        """Whom somebody still waits for, by the number of the call."""
        return {number: question for number, question in self._questions.items() if not question.answer.done()}

    def settle(self, question: Question) -> None:
        """Decide on one question, whichever way."""
        del self._questions[question.call.number]
        future = question.answer
        try:
            future.set_result(self._decide(question.call, question.message))
        except InjectedError as error:
            future.set_exception(error)

    def refuse(self, question: Question, code: int, message: str) -> None:
        question.call.verdict = (code, message)
        question.answer.set_result(Refuse(code, message))

    def _decide(self, call: Call, message: bytes) -> Answer:
        dice = self._dice
        kind = dice.below(8)
        then = self._then if dice.one_in(4) else None
        if kind < 2:
            call.verdict = call.body
            return Forward(message, then)
        if kind < 6:
            edited = (message + b"longer" * dice.below(60), message[: dice.below(len(message))], b"", message[::-1])
            call.verdict, forward = _body(edited[kind - 2]), Forward(edited[kind - 2], then)
            self.edited += 1
            return forward
        if kind == 6:
            call.verdict = (dice.pick((3, 7, 8, 9)), dice.pick(("", "no", "quota \u00fcber 5 %", "x" * 2_000)))
            return Refuse(*call.verdict)
        self.raised += 1
        call.verdict = InjectedError()
        raise call.verdict

    def _then(self) -> None:
        if self._dice.one_in(3):
            raise InjectedError

    def _model(self, call: intercept.Call, message: bytes) -> Call:
        number = int.from_bytes(message[:4])
        check(number < len(self._calls), "a message that nobody sent")
        model = self._calls[number]
        check(message == model.message, f"call {number}: another message than sent")
        check(call.path.encode() == model.method.path, f"call {number}: its message came with path {call.path}")
        call.note = model
        return model


def _body(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4) + message
