"""The Django edge of errors: problem+json on every surface for programs, pages elsewhere."""

from __future__ import annotations

import json
import logging
from collections.abc import Coroutine
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.test import Client, RequestFactory

from agents.errors import TooLarge
from agents.problems import CONTENT_TYPE
from agents.services import identity
from project.api import StrictParser, api
from project.errors import problem_of as refusal_of
from project.logs import TypeOnlyFormatter
from project.middleware import RequestEdge
from tests.api_client import Api, problem_of
from tests.world import PASSWORD, World, make_world

pytestmark = pytest.mark.django_db(databases="__all__")
CANARY = "canary-90210"


@pytest.fixture
def world() -> World:
    return make_world()


@pytest.fixture
def operator(world: World) -> Api:
    return Api(world.operator_user, organization="acme")


def post_raw(api: Api, data: bytes, content_type: str = "application/json", **extra: Any) -> Any:
    return api.client.post(
        "/api/v1/teams?organization=acme", data=data, content_type=content_type, **extra
    )


@pytest.mark.parametrize(
    "data",
    [b"{", b"nonsense", b'{"name": NaN}', b'{"name": "\\ud800"}', b"\xff\xfe", b"[" * 100_000],
)
def test_a_body_that_is_no_json_is_400(operator: Api, data: bytes) -> None:
    problem_of(post_raw(operator, data), 400, "malformed_body")


@pytest.mark.parametrize("data", [b"[]", b"null", b'"text"', b"", b'{"name": 7, "slug": []}'])
def test_json_of_another_shape_is_422(operator: Api, data: bytes) -> None:
    assert problem_of(post_raw(operator, data), 422, "invalid")["errors"]


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=b", ""],
)
def test_another_media_type_is_415(operator: Api, content_type: str) -> None:
    body = b'{"name": "A", "slug": "a"}'
    problem_of(post_raw(operator, body, content_type), 415, "unsupported_media_type")


def test_a_compressed_body_is_415(operator: Api) -> None:
    refused = post_raw(operator, b"x", headers={"Content-Encoding": "gzip"})
    problem_of(refused, 415, "unsupported_media_type")


def test_a_body_over_a_mebibyte_is_413(operator: Api) -> None:
    body = json.dumps({"name": "x" * 1_048_576}).encode()
    problem_of(post_raw(operator, body), 413, "too_large")


def test_a_chunked_body_that_announces_no_length_is_measured() -> None:
    request = RequestFactory().post("/api/v1/teams", content_type="application/json")
    request._body = b" " * 1_048_577
    with pytest.raises(TooLarge):
        StrictParser().parse_body(request)


def test_a_refused_field_is_named_and_its_value_is_not_repeated(operator: Api) -> None:
    body = {"name": f"{CANARY}\x00", "slug": f"{CANARY} !", CANARY: CANARY}
    refused = operator.post("/teams", body)
    document = problem_of(refused, 422, "invalid")
    fields = [error["field"] for error in document["errors"]]
    assert fields == ["body.name", "body.slug", "body"]
    assert CANARY not in refused.content.decode()


@pytest.mark.parametrize("text", ["", "x" * 121, "nul\x00"])
def test_names_are_bounded(operator: Api, text: str) -> None:
    problem_of(operator.post("/teams", {"name": text, "slug": "a"}), 422, "invalid")


@pytest.mark.parametrize(
    "path", ["/api/v1/nothing", "/api/", "/api", "/apps/v1/nothing", "/gateway/x"]
)
def test_an_unknown_address_for_programs_is_a_problem(path: str) -> None:
    problem_of(Client().get(path), 404, "not_found")


def test_a_path_that_no_database_could_hold_is_404(operator: Api) -> None:
    problem_of(operator.get("/agents/a%00b"), 404, "not_found")
    problem_of(operator.get("/tools/not-a-uuid"), 404, "not_found")


def test_a_wrong_method_is_405_with_the_right_ones(operator: Api) -> None:
    refused = operator.send("delete", "/teams")
    problem_of(refused, 405, "method_not_allowed")
    assert set(refused["Allow"].split(", ")) == {"GET", "POST"}


def test_pages_keep_html(client: Client) -> None:
    answer = client.get("/nowhere")
    assert (answer.status_code, answer["Content-Type"].split(";")[0]) == (404, "text/html")
    assert answer["X-Request-Id"]


def test_every_request_gets_an_id_of_ours(operator: Api) -> None:
    one, two = (operator.get("/teams", headers={"X-Request-Id": CANARY}) for _ in range(2))
    assert len({one["X-Request-Id"], two["X-Request-Id"], CANARY}) == 3
    assert one["Cache-Control"] == "no-store"


def test_a_session_that_writes_shows_the_csrf_token(world: World) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(world.operator_user)
    address = "/api/v1/teams?organization=acme"
    body = {"name": "Desk", "slug": "desk"}
    refused = browser.post(address, body, content_type="application/json")
    problem_of(refused, 403, "csrf_failed")
    assert browser.get(address).status_code == 200
    browser.get("/api/docs")
    token = browser.cookies["csrftoken"].value
    done = browser.post(
        address, body, content_type="application/json", headers={"X-CSRFToken": token}
    )
    assert done.status_code == 201


def test_nobody_is_told_401_before_csrf() -> None:
    browser = Client(enforce_csrf_checks=True)
    refused = browser.post("/api/v1/teams", {}, content_type="application/json")
    problem_of(refused, 401, "unauthenticated")
    assert refused["WWW-Authenticate"] == "Bearer"


def test_djangos_own_csrf_refusal_is_a_page_for_people(world: World) -> None:
    browser = Client(enforce_csrf_checks=True)
    refused = browser.post("/admin/login/", {"username": "x", "password": PASSWORD})
    assert (refused.status_code, refused["Content-Type"].split(";")[0]) == (403, "text/html")


def test_what_nobody_foresaw_is_500_and_logged_by_type_alone(
    operator: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(**_: Any) -> None:
        raise RuntimeError(CANARY)

    monkeypatch.setattr(identity, "create_team", fail)
    with caplog.at_level(logging.WARNING):
        refused = operator.post("/teams", {"name": "Desk", "slug": "desk"})
    document = problem_of(refused, 500, "internal")
    line = next(r.getMessage() for r in caplog.records if r.name == "mandate.errors")
    assert "RuntimeError" in line
    assert document["request_id"] in line
    assert CANARY not in refused.content.decode() + caplog.text


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OperationalError(CANARY), "store_unavailable"),
        (IntegrityError(CANARY), "conflict"),
    ],
)
def test_the_databases_own_refusals_are_no_500(error: Exception, code: str) -> None:
    found = refusal_of(error)
    assert found is not None
    assert (found.code, CANARY in found.detail) == (code, False)


def test_a_log_line_holds_no_exceptions_text() -> None:
    def fail() -> None:
        try:
            int(CANARY)
        except ValueError as cause:
            raise RuntimeError(CANARY) from cause

    with pytest.raises(RuntimeError) as caught:
        fail()
    error = caught.value
    shown = TypeOnlyFormatter().formatException((RuntimeError, error, error.__traceback__))
    assert CANARY not in shown
    assert "builtins.RuntimeError" in shown
    assert "builtins.ValueError" in shown
    assert "test_errors.py" in shown


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (HttpResponseRedirect("/sign-in"), "not_found"),
        (HttpResponse("<h1>no</h1>", status=500), "internal"),
        (HttpResponse("<h1>no</h1>", status=403), "forbidden"),
    ],
)
def test_no_page_and_no_redirect_reaches_a_program(answer: HttpResponse, code: str) -> None:
    edge = RequestEdge(lambda _: answer)
    seen = edge(RequestFactory().get("/api/v1/x"))
    assert isinstance(seen, HttpResponse)
    assert seen["Content-Type"] == CONTENT_TYPE
    assert json.loads(seen.content)["code"] == code
    assert edge(RequestFactory().get("/sign-in")) is answer


async def test_the_edge_works_in_an_async_server() -> None:
    async def page(_: HttpRequest) -> HttpResponse:
        return HttpResponse("<h1>no</h1>", status=404)

    edge = RequestEdge(page)
    answer = edge(RequestFactory().get("/apps/v1/x"))
    assert isinstance(answer, Coroutine)
    seen = await answer
    assert json.loads(seen.content)["code"] == "not_found"


def test_the_documentation_is_for_people_with_a_session(world: World) -> None:
    for path in ("/api/docs", "/api/openapi.json"):
        problem_of(Client().get(path), 401, "unauthenticated")
    member = Api(world.member_user).client
    assert b"swagger-ui" in member.get("/api/docs").content
    assert member.get("/api/openapi.json").json()["info"]["title"] == "Mandate"


def test_a_browser_that_asks_for_the_documentation_is_led_to_sign_in(world: World) -> None:
    browser = Client(headers={"Accept": "text/html,application/xhtml+xml"})
    led = browser.get("/api/docs?x=1")
    assert (led.status_code, led["Location"]) == (302, "/sign-in/?next=/api/docs%3Fx%3D1")
    assert "no-store" in led["Cache-Control"]
    problem_of(browser.get("/api/openapi.json"), 401, "unauthenticated")
    browser.force_login(world.member_user)
    assert b"swagger-ui" in browser.get("/api/docs").content


def test_every_operation_has_a_name_of_its_own_and_may_answer_a_problem() -> None:
    document = api.get_openapi_schema(path_prefix="")
    operations = [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    names = [operation["operationId"] for _, _, operation in operations]
    assert len(names) == len(set(names)) >= 45
    assert all("_api_" not in name for name in names), "an operation without operation_id"
    assert all("default" in operation["responses"] for _, _, operation in operations)
    assert all(path.startswith(("/api/v1/", "/apps/v1/")) for path, _, _ in operations)
    json.dumps(document)
