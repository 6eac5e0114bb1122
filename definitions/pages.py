"""The agents list and the agent page: write a definition, publish it, contain it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_http_methods, require_safe

from agents.errors import DamagedContent, DomainError, NotFound
from agents.models import Agent, Environment
from agents.pages import PageRequest, done, member_page
from agents.policy import require_manage
from agents.selectors.identity import agent_by_slug, environment_by_slug
from agents.selectors.names import person_name
from definitions.canonical import INSTRUCTIONS_LIMIT, Definition
from definitions.errors import DraftChanged
from definitions.forms import DraftForm, PublishForm, RationaleForm, UnpublishForm
from definitions.models import Draft, Version
from definitions.selectors import draft_of, editor, open_draft, versions_of
from definitions.selectors.publishing import Preview, preview_draft, preview_version
from definitions.services.drafts import save_draft
from definitions.services.publishing import publish_draft, publish_version, unpublish

Context = dict[str, Any]


@member_page
@require_safe
def agents(request: PageRequest) -> HttpResponse:
    """The agents that this person manages, with their state in the chosen environment."""
    query = request.GET.get("q", "").strip()
    found = editor.managed_agents(request.frame.actor, query)
    lines = editor.agent_lines(found, request.frame.environment)
    return render(request, "definitions/agents.html", {"agents": lines, "query": query})


def _managed(request: PageRequest, slug: str) -> Agent:
    agent = agent_by_slug(request.frame.actor, slug)
    require_manage(request.frame.actor, agent)
    return agent


def _address(name: str, agent: Agent, environment: Environment) -> str:
    return f"{reverse(name, args=[agent.slug])}?{urlencode({'environment': environment.slug})}"


# --- the draft ------------------------------------------------------------------------------


@member_page
@require_http_methods(["GET", "HEAD", "POST"])
def agent(request: PageRequest, slug: str) -> HttpResponse:
    """One agent: its draft to edit, where it is published, its versions."""
    found = _managed(request, slug)
    draft = draft_of(found)
    try:
        definition = open_draft(draft)
    except DamagedContent as error:
        return _show_agent(request, found, draft, {"damaged": error})
    models, tools = editor.model_choices(found, draft), editor.tool_choices(found, draft)
    if request.method == "POST":
        form = DraftForm(models, tools, request.POST)
        return _save(request, found, draft, form)
    form = DraftForm(models, tools, initial=_initial(definition, draft))
    return _show_agent(request, found, draft, {"form": form})


def _initial(definition: Definition, draft: Draft) -> Context:
    return {
        "instructions": definition.instructions,
        "model": str(definition.virtual_model_id or ""),
        "tools": [str(t) for t in definition.tool_ids],
        "base": draft.digest,
    }


def _save(request: PageRequest, agent: Agent, draft: Draft, form: DraftForm) -> HttpResponse:
    if not form.is_valid():
        return _show_saving(request, agent, draft, {"form": form}, status=422)
    data = form.cleaned_data
    try:
        saved = save_draft(
            actor=request.frame.actor,
            agent=agent,
            digest_seen=data["overwrite"] or data["base"],
            instructions=data["instructions"],
            virtual_model=editor.chosen_model(agent, data["model"]),
            tools=[t.tool for t in form.offered_tools if str(t.tool.id) in data["tools"]],
        )
    except DraftChanged:
        conflict = _conflict(draft_of(agent), data, form)
        return _show_saving(request, agent, draft, {"form": form, "conflict": conflict}, status=409)
    except DomainError as error:
        form.add_error(_field(form, error), error.detail)
        return _show_saving(request, agent, draft, {"form": form}, status=422)
    if not request.htmx:
        return done(request, _address("agent", agent, request.frame.environment))
    initial = {**data, "base": saved.digest}
    form = DraftForm(form.offered_models, form.offered_tools, initial=initial)
    return _show_saving(request, agent, saved, {"form": form}, status=200)


def _field(form: Any, error: DomainError) -> str | None:
    """The form field that a refusal is about, if it names one."""
    field = error.extra.get("field")
    return field if field in form.fields else None


def _conflict(theirs: Draft, mine: Context, form: DraftForm) -> Context:
    """Both drafts side by side; neither is lost."""
    model_names = {str(m.id): m.name for m in form.offered_models}
    tool_names = {str(t.tool.id): t.name for t in form.offered_tools}

    def side(instructions: str, model: object, chosen: Iterable[object]) -> Context:
        return {
            "instructions": instructions,
            "model": model_names.get(str(model), "no model"),
            "tools": [tool_names.get(str(t), "another tool") for t in chosen],
        }

    definition = open_draft(theirs)
    return {
        "author": person_name(theirs.updated_by),
        "digest": theirs.digest,
        "theirs": side(definition.instructions, definition.virtual_model_id, definition.tool_ids),
        "mine": side(mine["instructions"], mine["model"], mine["tools"]),
    }


def _show_saving(
    request: PageRequest, agent: Agent, draft: Draft, context: Context, *, status: int
) -> HttpResponse:
    """The result of a save: for htmx the save bar alone, so that typing goes on undisturbed."""
    if not request.htmx:
        return _show_agent(request, agent, draft, context, status=status)
    context |= _draft_context(request, agent, draft) | {"swap_state": status == 200}
    return render(request, "definitions/agent.html#save", context, status=status)


def _draft_context(request: PageRequest, agent: Agent, draft: Draft) -> Context:
    states = editor.states_of(agent, draft, request.frame.environments)
    chosen = request.frame.environment.slug
    return {
        "agent": agent,
        "draft": draft,
        "saved_by": person_name(draft.updated_by),
        "states": states,
        "state": next(state for state in states if state.slug == chosen),
    }


def _show_agent(
    request: PageRequest, agent: Agent, draft: Draft, context: Context, *, status: int = 200
) -> HttpResponse:
    context |= _draft_context(request, agent, draft) | {
        "versions": _versions(agent),
        "limit": INSTRUCTIONS_LIMIT,
    }
    if "form" in context:
        chosen = {str(value) for value in context["form"]["tools"].value() or ()}
        context["tool_groups"] = _tool_groups(request, context["form"].offered_tools, chosen)
    return render(request, "definitions/agent.html", context, status=status)


def _tool_groups(
    request: PageRequest, tools: Iterable[editor.ToolChoice], chosen: set[str]
) -> list[Context]:
    environments = [environment.slug for environment in request.frame.environments]
    return [
        {
            "connector": connector,
            "tools": [
                {
                    "value": str(choice.tool.id),
                    "name": choice.name,
                    "classification": choice.classification,
                    "description": choice.tool.description,
                    "note": choice.note(environments),
                    "chosen": str(choice.tool.id) in chosen,
                }
                for choice in choices
            ],
        }
        for connector, choices in groupby(tools, key=lambda choice: choice.tool.connector.name)
    ]


def _versions(agent: Agent) -> list[Context]:
    return [
        {
            "number": version.number,
            "digest": version.digest,
            "rationale": version.rationale,
            "author": person_name(version.created_by),
            "created_at": version.created_at,
            "live_in": sorted(p.environment.slug for p in version.publications.all()),
        }
        for version in versions_of(agent)
    ]


# --- publish and unpublish ------------------------------------------------------------------


@member_page
@require_http_methods(["GET", "HEAD", "POST"])
def publish(request: PageRequest, slug: str) -> HttpResponse:
    """Show what a publish would change, then do exactly that."""
    found = _managed(request, slug)
    if request.method != "POST":
        number = request.GET.get("version", "")
        initial = {"rationale": request.GET.get("rationale", ""), "key": uuid.uuid4().hex}
        preview = _preview(request, found, request.frame.environment, number)
        return _show_publish(request, preview, RationaleForm(initial=initial), initial["key"])
    form = PublishForm(request.POST)
    number, place = request.POST.get("version", ""), request.POST.get("environment", "")
    environment = environment_by_slug(found.organization_id, place)
    if not form.is_valid():
        preview = _preview(request, found, environment, number)
        return _show_publish(request, preview, form, request.POST.get("key", ""), status=422)
    try:
        words = _publish(request, found, environment, form.cleaned_data)
    except DomainError as error:
        form.add_error(_field(form, error), error.detail)
        preview = _preview(request, found, environment, number)
        return _show_publish(request, preview, form, uuid.uuid4().hex, status=422)
    messages.success(request, words)
    return done(request, _address("agent", found, environment))


def _publish(request: PageRequest, agent: Agent, environment: Environment, data: Context) -> str:
    """Publish the draft that was shown, or an existing version; a sentence for the notice."""
    actor, rationale = request.frame.actor, data["rationale"]
    if data["version"]:
        version = _version(agent, data["version"])
        result = publish_version(
            actor=actor, version=version, environment=environment, rationale=rationale
        )
    else:
        result = publish_draft(
            actor=actor,
            agent=agent,
            environment=environment,
            draft_digest=data["digest"],
            rationale=rationale,
            idempotency_key=data["key"],
        )
    return f"v{result.version.number} is live in {environment.slug}."


def _version(agent: Agent, number: int) -> Version:
    version = versions_of(agent).select_related("agent").filter(number=number).first()
    if version is None:
        raise NotFound("There is no such version.")
    return version


def _preview(request: PageRequest, agent: Agent, environment: Environment, number: str) -> Preview:
    if not number:
        return preview_draft(agent, environment)
    if not number.isdecimal() or len(number) > 9:
        raise NotFound("There is no such version.")
    return preview_version(_version(agent, int(number)), environment)


def _show_publish(
    request: PageRequest, preview: Preview, form: Any, key: str, *, status: int = 200
) -> HttpResponse:
    context = {
        "agent": preview.agent,
        "preview": preview,
        "form": form,
        "key": key,
        "environments": request.frame.environments,
    }
    return _show_dialog(request, "publish", context, status=status)


@member_page
@require_http_methods(["GET", "HEAD", "POST"])
def unpublish_page(request: PageRequest, slug: str) -> HttpResponse:
    """Show what an Unpublish ends, then contain the agent and say what it ended."""
    found = _managed(request, slug)
    form: RationaleForm = RationaleForm()
    environment, status = request.frame.environment, 200
    if request.method == "POST":
        form = UnpublishForm(request.POST)
        environment = environment_by_slug(
            found.organization_id, request.POST.get("environment", "")
        )
        status = 422
        if form.is_valid():
            try:
                ended = unpublish(
                    actor=request.frame.actor,
                    agent=found,
                    environment=environment,
                    rationale=form.cleaned_data["rationale"],
                )
            except DomainError as error:
                form.add_error(_field(form, error), error.detail)

            else:
                messages.success(request, f"Unpublished from {environment.slug}, {ended}.")
                return done(request, _address("agent", found, environment))
    context = {
        "agent": found,
        "environment": environment,
        "form": form,
        "live": editor.live_parts(found, environment),
    }
    return _show_dialog(request, "unpublish", context, status=status)


def _show_dialog(request: PageRequest, name: str, context: Context, *, status: int) -> HttpResponse:
    """A dialog's content for htmx; the same as a page of its own without."""
    if request.htmx:
        return render(
            request, f"definitions/_{name}.html", context | {"heading": "h2"}, status=status
        )
    return render(request, f"definitions/{name}.html", context | {"heading": "h1"}, status=status)
