"""A request id for every request, and problem documents on every surface for programs."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from agents.problems import CONTENT_TYPE
from project.errors import is_machine_path, problem_for_status

HEADER = "X-Request-Id"
NOT_MODIFIED = 304


class RequestEdge:
    """The outermost middleware: nothing behind it can answer a program with a page.

    The id is always ours; one that a client sends is neither believed nor logged.
    """

    sync_capable = True
    async_capable = True

    def __init__(
        self,
        get_response: Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]],
    ) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        request.request_id = uuid.uuid4().hex  # type: ignore[attr-defined]  # ours alone
        answer = self.get_response(request)
        if isinstance(answer, HttpResponseBase):
            return self.finish(request, answer)
        return self._finish_later(request, answer)

    async def _finish_later(
        self, request: HttpRequest, answer: Awaitable[HttpResponseBase]
    ) -> HttpResponseBase:
        return self.finish(request, await answer)

    def finish(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if is_machine_path(request.path_info):
            if _is_foreign(response):
                response = problem_for_status(request, response)
            response.setdefault("Cache-Control", "no-store")
        response[HEADER] = request.request_id  # type: ignore[attr-defined]  # set on entry
        return response


def _is_foreign(response: HttpResponseBase) -> bool:
    """Whether this is an error or a redirect in another shape than ours."""
    status = response.status_code
    if status < 300 or status == NOT_MODIFIED:
        return False
    return not response.get("Content-Type", "").startswith(CONTENT_TYPE)
