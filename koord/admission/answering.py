"""What every webhook does with a request before and after its own rules."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from koord.admission.errors import AdmissionError
from koord.model.admissionreview import Request, Response

P = ParamSpec("P")
Judge = Callable[Concatenate[Request, P], Response]


def answers(resource: str, subresource: str = "") -> Callable[[Judge[P]], Judge[P]]:
    """Makes of a judge of requests for ``resource`` one for any: others pass, and an AdmissionError is a refusal."""

    def decorate(judge: Judge[P]) -> Judge[P]:
        @wraps(judge)
        def answer(request: Request, /, *arguments: P.args, **named: P.kwargs) -> Response:
            if (request.resource, request.subresource) != (resource, subresource):
                return Response()
            try:
                return judge(request, *arguments, **named)
            except AdmissionError as error:
                return Response(code=error.code, message=str(error))

        return answer

    return decorate
