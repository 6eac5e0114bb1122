"""CORS for the JSON half of the chat surface; the streams answer for themselves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import patch_vary_headers

from chat.agui.cors import preflight_headers, response_headers

PREFIX = "/apps/v1/"

Answer = HttpResponseBase | Awaitable[HttpResponseBase]


class ChatOrigins:
    """Answers preflights under ``/apps/v1`` and marks answers for listed origins."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Answer]) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Answer:
        if not request.path_info.startswith(PREFIX):
            return self.get_response(request)
        origin = request.headers.get("Origin")
        if self.is_async:
            return self._later(request, origin)
        if request.method == "OPTIONS":
            return _preflight(origin)
        answer = self.get_response(request)
        assert isinstance(answer, HttpResponseBase)
        return _marked(answer, origin)

    async def _later(self, request: HttpRequest, origin: str | None) -> HttpResponseBase:
        if request.method == "OPTIONS":
            return _preflight(origin)
        answer = self.get_response(request)
        assert not isinstance(answer, HttpResponseBase)
        return _marked(await answer, origin)


def _preflight(origin: str | None) -> HttpResponse:
    return HttpResponse(status=204, headers=preflight_headers(origin))


def _marked(response: HttpResponseBase, origin: str | None) -> HttpResponseBase:
    for name, value in response_headers(origin).items():
        if name == "vary":
            patch_vary_headers(response, [value])
        else:
            response[name] = value
    return response
