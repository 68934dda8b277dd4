"""What every webhook does with a request before and after its own rules."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from koord.admission.errors import AdmissionError
from koord.model.admissionreview import AdmissionRequest, AdmissionResponse

P = ParamSpec("P")
Judge = Callable[Concatenate[AdmissionRequest, P], AdmissionResponse]


def answers(resource: str, subresource: str = "") -> Callable[[Judge[P]], Judge[P]]:
    """Makes of a judge of requests for ``resource`` one for any: others pass, and an AdmissionError is a refusal."""

    def decorate(judge: Judge[P]) -> Judge[P]:
        @wraps(judge)
        def answer(request: AdmissionRequest, /, *arguments: P.args, **named: P.kwargs) -> AdmissionResponse:
            if (request.resource, request.subresource) != (resource, subresource):
                return AdmissionResponse()
            try:
                return judge(request, *arguments, **named)
            except AdmissionError as error:
                return AdmissionResponse(code=error.code, message=str(error))

        return answer

    return decorate
