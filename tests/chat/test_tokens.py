"""Chat tokens: who may mint them, what they carry, and what they die with."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import IntegrityError
from django.test import Client

from agents import clock
from agents.choices import InitiatorKind
from agents.errors import DomainError, Invalid
from agents.models import AuditEvent, Membership, User
from agents.services import identity, keys
from chat.errors import TokenInvalid
from chat.models import ChatToken
from chat.selectors.tokens import caller_of
from chat.services.tokens import (
    forget_expired_tokens,
    mint_end_user_token,
    mint_member_token,
    mint_operator_token,
)
from tests.world import World, make_world

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")


@pytest.fixture
def world(transactional_db: None) -> World:
    return make_world()


def browser(user: User | None) -> Client:
    client = Client(enforce_csrf_checks=True, raise_request_exception=False)
    if user is not None:
        client.force_login(user)
    return client


def fetch(client: Client, body: Any = None, **headers: str) -> Any:
    return client.post(
        "/apps/v1/tokens", body or {}, content_type="application/json", headers=headers
    )


def csrf_of(client: Client) -> str:
    client.get("/sign-in/")
    token = "a" * 32
    client.cookies["csrftoken"] = token
    return token


def test_a_member_fetches_its_own_with_its_session(world: World) -> None:
    client = browser(world.member_user)
    answer = fetch(client, **{"X-CSRFToken": csrf_of(client)})
    assert answer.status_code == 201, answer.content
    document = answer.json()
    assert (document["environment"], document["agent"]) == ("production", None)
    caller = caller_of(document["token"])
    assert caller.principal.kind == InitiatorKind.MEMBER
    assert (caller.principal.issuer, caller.principal.subject) == (
        "mandate",
        str(world.member_user.id),
    )
    row = ChatToken.objects.get()
    assert timedelta(minutes=14) < row.expires_at - clock.database_now() <= timedelta(minutes=15)
    assert document["token"] not in str(ChatToken.objects.values())


def test_a_session_without_the_csrf_token_gets_nothing(world: World) -> None:
    client = browser(world.member_user)
    assert fetch(client).status_code == 403
    assert fetch(client, **{"X-CSRFToken": "b" * 32}).status_code == 403
    assert fetch(browser(None)).status_code == 401
    assert ChatToken.objects.count() == 0


def test_the_environment_and_agent_may_be_chosen_but_not_a_strangers(world: World) -> None:
    minted = mint_member_token(actor=world.member, environment="staging", agent="order-desk")
    caller = caller_of(minted.text)
    assert (caller.environment_id, caller.agent_id) == (world.staging.id, world.agent.id)
    make_world(name="globex")
    for options in ({"environment": "nowhere"}, {"agent": "nobody"}):
        with pytest.raises(DomainError) as refused:
            mint_member_token(actor=world.member, **options)
        assert refused.value.status == 404


def test_an_agent_key_mints_for_its_own_agent_and_environment(world: World) -> None:
    body = {"subject": "customer-7", "ttl_seconds": 60, "display_name": "Ada"}
    answer = fetch(browser(None), body, **world.authorization())
    assert answer.status_code == 201, answer.content
    caller = caller_of(answer.json()["token"])
    assert (caller.agent_id, caller.environment_id) == (world.agent.id, world.production.id)
    assert caller.principal.kind == InitiatorKind.END_USER
    assert caller.principal.subject == "customer-7"
    assert caller.display_name_digest
    assert "Ada" not in str(ChatToken.objects.values())


def test_another_key_of_the_agent_names_the_same_end_user(world: World) -> None:
    """Rotating keys keeps the end users' threads."""
    texts = [world.key_text, world.mint_key().text]
    principals = {
        caller_of(mint_end_user_token(key_text=t, subject="c", ttl_seconds=9).text).principal
        for t in texts
    }
    assert len(principals) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"subject": "c"},
        {"ttl_seconds": 60},
        {"subject": "c", "ttl_seconds": 3601},
        {"subject": "c", "ttl_seconds": 0},
        {"subject": "c", "ttl_seconds": "60"},
        {"subject": "", "ttl_seconds": 60},
        {"subject": "x" * 201, "ttl_seconds": 60},
        {"subject": "a\nb", "ttl_seconds": 60},
        {"subject": "a\x00b", "ttl_seconds": 60},
        {"subject": "c", "ttl_seconds": 60, "environment": "staging"},
        {"subject": "c", "ttl_seconds": 60, "agent": "other"},
        {"subject": "c", "ttl_seconds": 60, "scope": "all"},
    ],
)
def test_a_key_cannot_ask_for_more(world: World, body: dict[str, Any]) -> None:
    answer = fetch(browser(None), body, **world.authorization())
    assert answer.status_code == 422, answer.content
    assert ChatToken.objects.count() == 0


def test_dead_keys_and_other_credentials_mint_nothing(world: World) -> None:
    body = {"subject": "c", "ttl_seconds": 60}
    token = mint_member_token(actor=world.member).text
    for text in ("mk_aaaaaaaa_nothing", token, ""):
        assert fetch(browser(None), body, authorization=f"Bearer {text}").status_code == 401
    identity.suspend_agent(actor=world.manager, agent=world.agent, rationale="Stop.")
    assert fetch(browser(None), body, **world.authorization()).json()["code"] == "suspended"


def test_a_token_never_outlives_its_key(world: World) -> None:
    key = world.mint_key(lifetime=timedelta(seconds=30))
    minted = mint_end_user_token(key_text=key.text, subject="c", ttl_seconds=3600)
    assert minted.token.expires_at == key.key.expires_at


def test_it_dies_with_the_key(world: World) -> None:
    text = mint_end_user_token(key_text=world.key_text, subject="c", ttl_seconds=60).text
    assert caller_of(text)
    keys.revoke_key(actor=world.manager, key=world.key)
    with pytest.raises(TokenInvalid):
        caller_of(text)


def test_it_dies_with_the_member(world: World) -> None:
    text = mint_member_token(actor=world.member).text
    membership = Membership.objects.get(user=world.member_user)
    identity.change_member(actor=world.operator, membership=membership, active=False)
    with pytest.raises(TokenInvalid):
        caller_of(text)
    identity.change_member(actor=world.operator, membership=membership, active=True)
    assert caller_of(text)
    User.objects.filter(id=world.member_user.id).update(is_active=False)
    with pytest.raises(TokenInvalid):
        caller_of(text)


def test_it_dies_with_the_agent(world: World) -> None:
    texts = [
        mint_end_user_token(key_text=world.key_text, subject="c", ttl_seconds=60).text,
        mint_member_token(actor=world.member, agent="order-desk").text,
    ]
    identity.suspend_agent(actor=world.manager, agent=world.agent, rationale="Stop.")
    for text in texts:
        with pytest.raises(TokenInvalid):
            caller_of(text)


def test_it_expires(world: World) -> None:
    text = mint_member_token(actor=world.member).text
    with clock.shifted(timedelta(minutes=15)), pytest.raises(TokenInvalid):
        caller_of(text)
    with clock.shifted(timedelta(days=2)):
        assert forget_expired_tokens() == 1


@pytest.mark.parametrize("text", ["", "ct_", "ct_aaaaaaaa_x", "mk_aaaaaaaa_x", "ct_\u00e9"])
def test_anything_else_is_nobody(world: World, text: str) -> None:
    with pytest.raises(TokenInvalid):
        caller_of(text)


def test_an_operator_mints_for_trying_and_it_is_audited(world: World) -> None:
    minted = mint_operator_token(
        actor=world.operator, agent=world.agent, environment=world.production, subject="try"
    )
    assert caller_of(minted.text).principal.subject == "try"
    event = AuditEvent.objects.get(action="chat_token.mint")
    assert event.target_id == minted.token.accessor
    with pytest.raises(DomainError):
        mint_operator_token(
            actor=world.manager, agent=world.agent, environment=world.production, subject="try"
        )
    with pytest.raises(Invalid):
        mint_operator_token(
            actor=world.operator,
            agent=world.agent,
            environment=world.production,
            subject="try",
            ttl_seconds=3601,
        )


def test_the_command_prints_the_token_as_its_last_line(world: World) -> None:
    out = StringIO()
    options = {"environment": "production", "subject": "ada", "stdout": out, "stderr": StringIO()}
    call_command("mint_chat_token", "order-desk", **options)
    token = out.getvalue().strip().splitlines()[-1]
    assert caller_of(token).principal.subject == "ada"
    with pytest.raises(CommandError, match="no agent"):
        call_command("mint_chat_token", "nobody", **options)
    make_world(name="globex")
    with pytest.raises(CommandError, match="--organization"):
        call_command("mint_chat_token", "order-desk", **options)
    call_command("mint_chat_token", "order-desk", organization="globex", **options)
    assert caller_of(out.getvalue().strip().splitlines()[-1]).organization_id != (
        world.organization.id
    )


def test_the_database_refuses_a_token_without_its_source(world: World) -> None:
    token = mint_member_token(actor=world.member).token
    token.user = None
    with pytest.raises(IntegrityError):
        token.save()


def test_a_session_cookie_opens_nothing_but_the_token_route(world: World) -> None:
    client = browser(world.member_user)
    for path in ("/apps/v1/agents", "/apps/v1/threads", "/apps/v1/agents/order-desk/capabilities"):
        answer = client.get(path)
        assert answer.status_code == 401
        assert answer["Content-Type"] == "application/problem+json"
