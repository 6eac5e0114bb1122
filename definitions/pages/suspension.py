"""Suspend an agent everywhere, and let it work again: told first, then done."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.views.decorators.http import require_http_methods

from agents.errors import DomainError
from agents.models import Agent
from agents.pages import PageRequest, done, member_page
from agents.services.identity import resume_agent, suspend_agent
from definitions.forms import RationaleForm, SuspensionForm
from definitions.pages.common import address_of, field_of, managed_agent, show_dialog
from definitions.selectors import draft_of, editor


@member_page
@require_http_methods(["GET", "HEAD", "POST"])
def suspend(request: PageRequest, slug: str) -> HttpResponse:
    """Show what a suspension ends in every environment, then end it and say what it was."""
    found = managed_agent(request, slug)
    if request.method != "POST":
        return _show(request, "suspend", found, SuspensionForm())
    form = SuspensionForm(request.POST)
    if not form.is_valid():
        return _show(request, "suspend", found, form, status=422)
    try:
        ended = suspend_agent(
            actor=request.frame.actor, agent=found, rationale=form.cleaned_data["rationale"]
        )
    except DomainError as error:
        form.add_error(field_of(form, error), error.detail)
        return _show(request, "suspend", found, form, status=422)
    messages.success(request, f"{found.name} is suspended, {ended}.")
    return done(request, address_of("agent", found, request.frame.environment))


@member_page
@require_http_methods(["GET", "HEAD", "POST"])
def resume(request: PageRequest, slug: str) -> HttpResponse:
    """Show where the agent will answer again, then let it."""
    found = managed_agent(request, slug)
    if request.method != "POST":
        return _show(request, "resume", found, SuspensionForm())
    form = SuspensionForm(request.POST)
    if not form.is_valid():
        return _show(request, "resume", found, form, status=422)
    try:
        resume_agent(
            actor=request.frame.actor, agent=found, rationale=form.cleaned_data["rationale"]
        )
    except DomainError as error:
        form.add_error(field_of(form, error), error.detail)
        return _show(request, "resume", found, form, status=422)
    messages.success(request, f"{found.name} is resumed. It works again where it is published.")
    return done(request, address_of("agent", found, request.frame.environment))


def _show(
    request: PageRequest, name: str, agent: Agent, form: RationaleForm, *, status: int = 200
) -> HttpResponse:
    context = {
        "agent": agent,
        "form": form,
        "live": editor.live_parts(agent),
        "states": editor.states_of(agent, draft_of(agent), request.frame.environments),
    }
    return show_dialog(request, name, context, status=status)
