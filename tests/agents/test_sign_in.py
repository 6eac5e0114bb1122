"""Signing in and out, and who gets to see product pages at all."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from agents.models import Membership
from tests.world import PASSWORD, World, make_world

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")


@pytest.fixture
def world() -> World:
    return make_world()


def sign_in(client: Client, username: str, password: str = PASSWORD, **data: str) -> Any:
    return client.post("/sign-in/", {"username": username, "password": password, **data})


def test_it_works(client: Client, world: World) -> None:
    answer = sign_in(client, "acme-member")
    assert (answer.status_code, answer["Location"]) == (302, "/")
    page = client.get("/")
    assert page.status_code == 200
    assert "Acme" in page.content.decode()


def test_it_follows_next_on_this_host_only(client: Client, world: World) -> None:
    answer = sign_in(client, "acme-member", next="/approvals/")
    assert answer["Location"] == "/approvals/"
    client.logout()
    answer = sign_in(client, "acme-member", next="https://elsewhere.example/")
    assert answer["Location"] == "/"


@pytest.mark.parametrize("case", ["wrong password", "nobody", "left", "never a member"])
def test_it_gives_one_answer_for_every_reason(client: Client, world: World, case: str) -> None:
    name, password = "acme-member", PASSWORD
    if case == "wrong password":
        password = "guess"
    elif case == "nobody":
        name = "who"
    elif case == "left":
        Membership.objects.filter(user=world.member_user).update(active=False)
    else:
        Membership.objects.filter(user=world.member_user).delete()
    answer = sign_in(client, name, password)
    assert answer.status_code == 422
    text = answer.content.decode()
    assert "do not match an active account" in text
    assert PASSWORD not in text
    assert "guess" not in text


def test_pages_lead_visitors_to_sign_in(client: Client, world: World) -> None:
    for path in ("/", "/agents/", "/agents/order-desk/", "/chat/", "/approvals/"):
        answer = client.get(path)
        assert (answer.status_code, answer["Location"]) == (302, f"/sign-in/?next={path}")


def test_an_htmx_request_without_a_session_leads_the_whole_page(
    client: Client, world: World
) -> None:
    headers = {"HX-Request": "true", "HX-Current-URL": "http://testserver/agents/order-desk/"}
    answer = client.get("/agents/order-desk/publish/", headers=headers)
    assert answer["HX-Redirect"] == "/sign-in/?next=/agents/order-desk/"


def test_a_session_ends_with_the_membership(client: Client, world: World) -> None:
    client.force_login(world.member_user)
    assert client.get("/").status_code == 200
    Membership.objects.filter(user=world.member_user).update(active=False)
    assert client.get("/")["Location"].startswith("/sign-in/")
    Membership.objects.filter(user=world.member_user).update(active=True)
    assert client.get("/").status_code == 302, "the session was not ended"


def test_operators_get_the_admin_and_no_product_page(client: Client, world: World) -> None:
    client.force_login(world.operator_user)
    assert client.get("/agents/order-desk/")["Location"] == "/admin/"


def test_signing_out_needs_a_post(client: Client, world: World) -> None:
    client.force_login(world.member_user)
    assert client.get("/sign-out/").status_code == 405
    assert client.get("/").status_code == 200
    assert client.post("/sign-out/")["Location"] == "/sign-in/"
    assert client.get("/").status_code == 302


def test_pages_allow_no_inline_code_and_no_remote_anything(client: Client, world: World) -> None:
    policy = client.get("/sign-in/")["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "img-src 'self' data:" in policy
