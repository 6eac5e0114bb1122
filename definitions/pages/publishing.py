"""Publish, publish an old version again, and Unpublish: told first, then done."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.views.decorators.http import require_http_methods

from agents.errors import DomainError, NotFound
from agents.models import Agent, Environment
from agents.pages import PageRequest, done, member_page
from agents.selectors.identity import environment_by_slug
from definitions.forms import PublishForm, RationaleForm, UnpublishForm
from definitions.models import Version
from definitions.pages.common import Context, address_of, field_of, managed_agent, show_dialog
from definitions.selectors import editor, versions_of
from definitions.selectors.publishing import Preview, preview_draft, preview_version
from definitions.services.publishing import publish_draft, publish_version, unpublish


@member_page
@require_http_methods(["GET", "HEAD", "POST"])
def publish(request: PageRequest, slug: str) -> HttpResponse:
    """Show what a publish would change, then do exactly that."""
    found = managed_agent(request, slug)
    if request.method != "POST":
        preview = _preview(found, request.frame.environment, request.GET.get("version", ""))
        return _show_publish(request, preview, RationaleForm(), uuid.uuid4().hex)
    form = PublishForm(request.POST)
    number, place = request.POST.get("version", ""), request.POST.get("environment", "")
    environment = environment_by_slug(found.organization_id, place)
    if not form.is_valid():
        preview = _preview(found, environment, number)
        return _show_publish(request, preview, form, request.POST.get("key", ""), status=422)
    try:
        words = _publish(request, found, environment, form.cleaned_data)
    except DomainError as error:
        form.add_error(field_of(form, error), error.detail)
        preview = _preview(found, environment, number)
        return _show_publish(request, preview, form, uuid.uuid4().hex, status=422)
    messages.success(request, words)
    return done(request, address_of("agent", found, environment))


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


def _preview(agent: Agent, environment: Environment, number: str) -> Preview:
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
    return show_dialog(request, "publish", context, status=status)


@member_page
@require_http_methods(["GET", "HEAD", "POST"])
def unpublish_page(request: PageRequest, slug: str) -> HttpResponse:
    """Show what an Unpublish ends, then contain the agent and say what it ended."""
    found = managed_agent(request, slug)
    if request.method != "POST":
        return _show_unpublish(request, found, request.frame.environment, RationaleForm())
    form = UnpublishForm(request.POST)
    place = request.POST.get("environment", "")
    environment = environment_by_slug(found.organization_id, place)
    if not form.is_valid():
        return _show_unpublish(request, found, environment, form, status=422)
    try:
        ended = unpublish(
            actor=request.frame.actor,
            agent=found,
            environment=environment,
            rationale=form.cleaned_data["rationale"],
        )
    except DomainError as error:
        form.add_error(field_of(form, error), error.detail)
        return _show_unpublish(request, found, environment, form, status=422)
    messages.success(request, f"Unpublished from {environment.slug}, {ended}.")
    return done(request, address_of("agent", found, environment))


def _show_unpublish(
    request: PageRequest, agent: Agent, environment: Environment, form: Any, *, status: int = 200
) -> HttpResponse:
    context = {
        "agent": agent,
        "environment": environment,
        "form": form,
        "live": editor.live_parts(agent, environment),
    }
    return show_dialog(request, "unpublish", context, status=status)
