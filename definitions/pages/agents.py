"""The list of agents, and one agent's draft with what stands around it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods, require_safe

from agents.errors import DamagedContent, DomainError, Forbidden
from agents.models import Agent
from agents.pages import PageRequest, done, member_page
from agents.selectors.names import person_name
from definitions.canonical import INSTRUCTIONS_LIMIT, Definition
from definitions.errors import DraftChanged
from definitions.forms import DraftForm, NewAgentForm
from definitions.models import Draft
from definitions.pages.common import Context, address_of, field_of, managed_agent, show_dialog
from definitions.selectors import draft_of, editor, open_draft, versions_of
from definitions.services.drafts import create_agent, save_draft


@member_page
@require_safe
def agents(request: PageRequest) -> HttpResponse:
    """The agents that this person manages, with their state in the chosen environment."""
    query = request.GET.get("q", "").strip()
    found = editor.managed_agents(request.frame.actor, query)
    lines = editor.agent_lines(found, request.frame.environment)
    context = {
        "agents": lines,
        "query": query,
        "may_create": editor.own_teams(request.frame.actor).exists(),
    }
    return render(request, "definitions/agents.html", context)


@member_page
@require_http_methods(["GET", "HEAD", "POST"])
def new_agent(request: PageRequest) -> HttpResponse:
    """Make an agent in one of the person's teams; it then shows its empty draft."""
    teams = editor.own_teams(request.frame.actor)
    if not teams.exists():
        raise Forbidden("Agent managers with a team create agents.")
    if request.method != "POST":
        return _show_new(request, NewAgentForm(teams))
    form = NewAgentForm(teams, request.POST)
    if not form.is_valid():
        return _show_new(request, form, status=422)
    try:
        made = create_agent(actor=request.frame.actor, **form.cleaned_data)
    except DomainError as error:
        form.add_error(field_of(form, error), error.detail)
        return _show_new(request, form, status=422)
    messages.success(request, f"{made.name} is created. Write its instructions, then publish.")
    return done(request, address_of("agent", made, request.frame.environment))


def _show_new(request: PageRequest, form: NewAgentForm, *, status: int = 200) -> HttpResponse:
    return show_dialog(request, "new_agent", {"form": form}, status=status)


@member_page
@require_http_methods(["GET", "HEAD", "POST"])
def agent(request: PageRequest, slug: str) -> HttpResponse:
    """One agent: its draft to edit, where it is published, its versions."""
    found = managed_agent(request, slug)
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
        form.add_error(field_of(form, error), error.detail)
        return _show_saving(request, agent, draft, {"form": form}, status=422)
    if not request.htmx:
        return done(request, address_of("agent", agent, request.frame.environment))
    initial = {**data, "base": saved.digest}
    form = DraftForm(form.offered_models, form.offered_tools, initial=initial)
    return _show_saving(request, agent, saved, {"form": form}, status=200)


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
