"""``/api/v1``: drafts under If-Match, versions, publish and unpublish."""

from __future__ import annotations

from typing import Any

import pytest

from agents.models import IdempotencyRecord
from definitions.models import Draft, Version
from tests.api_client import Api, problem_of
from tests.world import World, make_world

pytestmark = pytest.mark.django_db(databases="__all__")
AGENT = "/agents/order-desk"
TEXT = "Answer politely. instruction-canary-5512"


@pytest.fixture
def world() -> World:
    return make_world()


@pytest.fixture
def manager(world: World) -> Api:
    return Api(world.manager_user)


def tag_of(api: Api) -> str:
    tag: str = api.get(f"{AGENT}/draft")["ETag"]
    return tag


def save(api: Api, text: str, tag: str, **members: Any) -> Any:
    body = {"instructions": text, "model": "standard", "tools": [], **members}
    return api.put(f"{AGENT}/draft", body, headers={"If-Match": tag})


def publish(api: Api, **members: Any) -> Any:
    headers = {"Idempotency-Key": members.pop("key")} if "key" in members else {}
    body = {
        "environment": "production",
        "draft_digest": tag_of(api).strip('"'),
        "rationale": "first",
        **members,
    }
    return api.post(f"{AGENT}/actions/publish", body, headers=headers)


def test_a_draft_is_saved_against_the_one_that_was_seen(manager: Api) -> None:
    saved = save(manager, TEXT, tag_of(manager))
    assert saved.status_code == 200
    assert saved["ETag"] == f'"{saved.json()["digest"]}"' == tag_of(manager)
    read = manager.get(f"{AGENT}/draft").json()
    assert (read["instructions"], read["model"], read["tools"]) == (TEXT, "standard", [])
    assert read["updated_by"] == "acme-manager"


def test_a_write_without_if_match_is_refused(manager: Api) -> None:
    refused = manager.put(f"{AGENT}/draft", {"instructions": TEXT})
    problem_of(refused, 428, "if_match_required")
    for tag in ("*", "plain", 'W/"' + "0" * 64 + '"', '"short"'):
        problem_of(save(manager, TEXT, tag), 422, "invalid")
    assert manager.get(f"{AGENT}/draft").json()["instructions"] == ""


def test_the_loser_of_a_race_gets_both_versions(manager: Api) -> None:
    seen = tag_of(manager)
    assert save(manager, "Theirs", seen).status_code == 200
    lost = problem_of(save(manager, "Mine", seen, model=None), 409, "draft_changed")
    assert lost["current"]["instructions"] == "Theirs"
    assert lost["current"]["model"] == "standard"
    assert f'"{lost["current"]["digest"]}"' == tag_of(manager)
    assert (lost["yours"]["instructions"], lost["yours"]["model"]) == ("Mine", None)
    assert lost["yours"]["digest"] not in (lost["current"]["digest"], seen.strip('"'))
    won = save(manager, "Mine", f'"{lost["current"]["digest"]}"', model=None)
    assert won.json()["digest"] == lost["yours"]["digest"]


def test_saving_the_same_text_again_is_no_conflict(manager: Api) -> None:
    seen = tag_of(manager)
    assert save(manager, TEXT, seen).status_code == 200
    assert save(manager, TEXT, seen).status_code == 200


@pytest.mark.parametrize(
    ("members", "status", "code"),
    [
        ({"model": "nosuch"}, 422, "invalid"),
        ({"tools": ["no__such"]}, 422, "invalid"),
        ({"instructions": "a\x00b"}, 422, "invalid"),
        ({"instructions": "x" * 65_537}, 413, "instructions_too_large"),
        ({"surprise": 1}, 422, "invalid"),
    ],
)
def test_a_draft_that_cannot_be_stored_is_refused(
    manager: Api, members: dict[str, Any], status: int, code: str
) -> None:
    tag = tag_of(manager)
    text = members.pop("instructions", TEXT)
    refused = save(manager, text, tag, **members)
    problem_of(refused, status, code)
    assert tag_of(manager) == tag


def test_publish_takes_exactly_the_draft_that_was_seen(manager: Api) -> None:
    save(manager, TEXT, tag_of(manager))
    stale = publish(manager, draft_digest="0" * 64)
    assert problem_of(stale, 409, "draft_changed")["current"] == tag_of(manager).strip('"')
    done = publish(manager)
    assert done.status_code == 200
    version = done.json()["version"]
    assert (version["number"], version["published_in"]) == (1, ["production"])
    assert f'"{version["digest"]}"' == tag_of(manager)


def test_the_same_request_twice_publishes_once(manager: Api) -> None:
    save(manager, TEXT, tag_of(manager))
    first, second = publish(manager, key="once"), publish(manager, key="once")
    assert first.json() == second.json()
    assert (Version.objects.count(), IdempotencyRecord.objects.count()) == (1, 1)
    other = publish(manager, key="once", rationale="another body")
    problem_of(other, 422, "idempotency_mismatch")
    for key in ("", "x" * 129):
        problem_of(publish(manager, key=key), 422, "invalid")


def test_an_empty_draft_and_an_ungranted_model_are_not_published(manager: Api) -> None:
    problem_of(publish(manager), 409, "nothing_to_publish")
    save(manager, TEXT, tag_of(manager))
    problem_of(publish(manager, environment="staging"), 403, "model_not_granted")
    problem_of(publish(manager, environment="nowhere"), 404, "not_found")


def test_an_old_version_is_published_again_without_a_new_number(manager: Api) -> None:
    for text in ("one", "two"):
        save(manager, text, tag_of(manager))
        publish(manager)
    path = f"{AGENT}/versions/1/actions/publish"
    back = manager.post(path, {"environment": "production", "rationale": "two was worse"})
    assert back.json()["version"]["published_in"] == ["production"]
    listed = manager.get(f"{AGENT}/versions").json()["items"]
    assert [(row["number"], row["published_in"]) for row in listed] == [
        (2, []), (1, ["production"]),
    ]  # fmt: skip
    (live,) = manager.get(f"{AGENT}/publications").json()["items"]
    assert (live["environment"], live["version"]) == ("production", 1)


def test_unpublish_says_how_long_it_took_and_what_it_ended(manager: Api) -> None:
    save(manager, TEXT, tag_of(manager))
    publish(manager)
    body = {"environment": "production", "rationale": "it promised refunds"}
    ended = manager.post(f"{AGENT}/actions/unpublish", body)
    assert ended.status_code == 200
    assert ended.json()["seconds"] >= 0
    problem_of(manager.post(f"{AGENT}/actions/unpublish", body), 409, "not_published_here")
    assert manager.get(f"{AGENT}/publications").json()["items"] == []


def test_only_managers_of_the_team_read_content(world: World, manager: Api) -> None:
    save(manager, TEXT, tag_of(manager))
    publish(manager)
    assert manager.get(f"{AGENT}/versions/1").json()["definition"]["instructions"] == TEXT
    for reader in (Api(world.member_user), Api(world.operator_user, organization="acme")):
        problem_of(reader.get(f"{AGENT}/draft"), 403, "forbidden")
        version = reader.get(f"{AGENT}/versions/1")
        assert (version.status_code, version.json()["definition"]) == (200, None)
        seen = version.content + reader.get(f"{AGENT}/versions").content
        assert b"instruction-canary" not in seen


def test_damaged_content_refuses_and_lists_keep_working(manager: Api) -> None:
    save(manager, TEXT, tag_of(manager))
    publish(manager)
    Draft.objects.update(digest="0" * 64)
    problem_of(manager.get(f"{AGENT}/draft"), 409, "content_damaged")
    assert manager.get(f"{AGENT}/versions").json()["count"] == 1
