"""``/apps/v1``: the JSON half of the chat surface. The two streams are in ``chat.agui``."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Query, Router, Status
from ninja.utils import check_csrf

from agents.errors import CsrfFailed, Invalid, Unauthenticated
from agents.gateways.auth import bearer
from agents.selectors.identity import actor_of
from chat.schemas import (
    AgentItem,
    AgentList,
    CancelOut,
    ThreadList,
    ThreadOut,
    ThreadPatch,
    TokenIn,
    TokenOut,
)
from chat.selectors.conversation import conversation, title_of
from chat.selectors.offer import capabilities, offered
from chat.selectors.overview import MAX_LIMIT, overview
from chat.selectors.threads import own_run, own_thread
from chat.selectors.tokens import Caller, caller_of
from chat.services.canceling import cancel_own_run
from chat.services.threads import erase_thread, rename_thread
from chat.services.tokens import MintedToken, mint_end_user_token, mint_member_token


class CallerRequest(HttpRequest):
    """A request after authentication, as operations see it."""

    auth: Caller


def _credential(request: HttpRequest) -> str:
    """The bearer credential, by the rules of the data plane."""
    headers = []
    if "Authorization" in request.headers:
        headers.append(
            (b"authorization", request.headers["Authorization"].encode("latin-1", "replace"))
        )
    return bearer(
        {
            "path": request.path,
            "query_string": request.META.get("QUERY_STRING", "").encode(),
            "headers": headers,
        }
    )


def chat_token(request: HttpRequest) -> Caller:
    """The one credential of this surface; a session's cookie says nothing here."""
    return caller_of(_credential(request))


def anybody(_request: HttpRequest) -> bool:
    """For the one operation that looks at its credentials itself."""
    return True


router = Router(tags=["chat"], auth=chat_token)


@router.post("/tokens", response={201: TokenOut}, operation_id="mint_chat_token", auth=anybody)
def mint_token(request: HttpRequest, body: TokenIn) -> Status[TokenOut]:
    """An agent key mints for an end user (`subject`); a session fetches its own member's token."""
    if "Authorization" in request.headers:
        minted = _mint_for_end_user(_credential(request), body)
    else:
        minted = _mint_for_member(request, body)
    token = minted.token
    return Status(
        201,
        TokenOut(
            token=minted.text,
            expires_at=token.expires_at,
            environment=token.environment.slug,
            agent=None if token.agent is None else token.agent.slug,
        ),
    )


def _mint_for_end_user(key_text: str, body: TokenIn) -> MintedToken:
    if body.environment is not None or body.agent is not None:
        raise Invalid("A key mints for its own agent and environment.", field="environment")
    if body.subject is None:
        raise Invalid("Name the end user.", field="subject")
    if body.ttl_seconds is None:
        raise Invalid("Say how long the token lives, at most 3600 seconds.", field="ttl_seconds")
    return mint_end_user_token(
        key_text=key_text,
        subject=body.subject,
        ttl_seconds=body.ttl_seconds,
        display_name=body.display_name,
    )


def _mint_for_member(request: HttpRequest, body: TokenIn) -> MintedToken:
    actor = actor_of(request.user)
    if check_csrf(request) is not None:
        raise CsrfFailed
    if body.subject is not None or body.ttl_seconds is not None or body.display_name:
        raise Invalid("A session fetches a token for its own member.", field="subject")
    if actor.organization_id is None:
        raise Unauthenticated("This account has no active membership.")
    return mint_member_token(actor=actor, environment=body.environment, agent=body.agent)


@router.get("/agents", response=AgentList, operation_id="list_chat_agents")
def list_agents(request: CallerRequest) -> AgentList:
    """The agents that the token's bearer may chat with."""
    return AgentList(
        items=[
            AgentItem(
                slug=slot.agent.slug,
                name=slot.agent.name,
                environment=slot.environment.slug,
                version=slot.published_number or 0,
            )
            for slot in offered(request.auth)
        ]
    )


@router.get(
    "/agents/{str:agent}/capabilities",
    response=dict[str, Any],
    operation_id="get_agent_capabilities",
)
def get_capabilities(request: CallerRequest, agent: str) -> dict[str, Any]:
    """AG-UI's AgentCapabilities of one agent."""
    return capabilities(request.auth, agent)


Limit = Annotated[int, Query(50, ge=1, le=MAX_LIMIT)]
Before = Annotated[str | None, Query(None, max_length=80)]


@router.get("/threads", response=ThreadList, operation_id="list_threads", by_alias=True)
def list_threads(request: CallerRequest, limit: Limit, before: Before) -> Any:
    """The bearer's own threads, the last active first."""
    page = overview(request.auth, limit=limit, before=before)
    return {"items": page.items, "next": page.next}


@router.get("/threads/{str:thread}", response=ThreadOut, operation_id="get_thread", by_alias=True)
def get_thread(request: CallerRequest, thread: str) -> Any:
    """One thread with its messages and everything that waits for a decision."""
    return conversation(own_thread(request.auth, thread))


@router.patch("/threads/{str:thread}", response=dict[str, str], operation_id="rename_thread")
def patch_thread(request: CallerRequest, thread: str, body: ThreadPatch) -> dict[str, str]:
    """Give a thread another title."""
    renamed = rename_thread(caller=request.auth, client_id=thread, title=body.title)
    return {"id": str(renamed.id), "title": title_of(renamed)}


@router.delete("/threads/{str:thread}", response={204: None}, operation_id="erase_thread")
def delete_thread(request: CallerRequest, thread: str) -> Status[None]:
    """Erase a thread's texts for good. Refused while one of its runs is active."""
    erase_thread(caller=request.auth, client_id=thread)
    return Status(204, None)


@router.post(
    "/threads/{str:thread}/runs/{str:run}/cancel",
    response={202: CancelOut},
    operation_id="cancel_run",
)
def cancel_run(request: CallerRequest, thread: str, run: str) -> Status[CancelOut]:
    """Stop a run: its upstream calls end, and its stream ends with the outcome `cancelled`."""
    _thread, found = own_run(request.auth, thread, run)
    return Status(202, CancelOut(id=str(found.id), cancelling=cancel_own_run(found.id)))
