"""Signing in and out, and what every page stands on: who asks, where, and how refusals look."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, cast

from django import forms
from django.conf import settings
from django.contrib.auth import logout
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView, redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST
from django_htmx.http import HttpResponseClientRedirect, reswap, trigger_client_event
from django_htmx.middleware import HtmxDetails

from agents.errors import DomainError, NotFound, Unauthenticated
from agents.models import Environment, User
from agents.policy import Actor
from agents.selectors.identity import actor_of, membership_of

P = ParamSpec("P")

#: The environment that a page shows when its address names none.
DEFAULT_ENVIRONMENT = "production"


@dataclass(frozen=True, slots=True)
class Frame:
    """Who looks at a page, and which environment it shows."""

    actor: Actor
    organization_id: Any
    organization: str
    environments: tuple[Environment, ...]
    environment: Environment


class PageRequest(HttpRequest):
    """A request of a signed-in member, as :func:`member_page` hands it to a view."""

    user: User
    frame: Frame
    htmx: HtmxDetails


def member_page(
    view: Callable[Concatenate[PageRequest, P], HttpResponse],
) -> Callable[..., HttpResponse]:
    """Serve a page to an active member of an organization; others are led to where they can act.

    Operators without a membership see no product pages: they get the admin. A refusal becomes a
    page that says so, or for an htmx request an event that the page shows as a notice.
    """

    @never_cache
    @functools.wraps(view)
    def wrapper(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        page = cast("PageRequest", request)
        try:
            frame = _frame(request)
        except Unauthenticated:
            logout(request)
            return _lead_to(page, redirect_to_login(_return_to(page)).url)
        if frame is None:
            return _lead_to(page, reverse("admin:index"))
        page.frame = frame
        try:
            return view(page, *args, **kwargs)
        except NotFound as error:
            raise Http404(str(error)) from error
        except DomainError as error:
            return _refusal(page, error)

    return wrapper


def _frame(request: HttpRequest) -> Frame | None:
    """None for an operator who is a member of nothing. Raises Unauthenticated, Http404."""
    actor = actor_of(request.user)
    if actor.organization_id is None:
        return None
    membership = membership_of(cast("User", request.user).pk)
    assert membership is not None  # the actor has an organization
    environments = tuple(
        Environment.objects.filter(organization_id=actor.organization_id).order_by("slug")
    )
    wanted = request.GET.get("environment")
    by_slug = {environment.slug: environment for environment in environments}
    if not environments or (wanted and wanted not in by_slug):
        raise Http404("There is no such environment.")
    chosen = by_slug.get(wanted or DEFAULT_ENVIRONMENT, environments[0])
    return Frame(actor, actor.organization_id, membership.organization.name, environments, chosen)


def _return_to(request: PageRequest) -> str:
    """Where the person was: for a fragment, the page around it."""
    return (request.htmx and request.htmx.current_url_abs_path) or request.get_full_path()


def _lead_to(request: PageRequest, url: str) -> HttpResponse:
    return HttpResponseClientRedirect(url) if request.htmx else redirect(url)


def _refusal(request: PageRequest, error: DomainError) -> HttpResponse:
    if request.htmx:
        response = HttpResponse(status=error.status)
        trigger_client_event(response, "mandate:refused", {"text": error.detail})
        return reswap(response, "none")
    return render(
        request,
        "refused.html",
        {"title": error.title, "detail": error.detail, "code": error.code},
        status=error.status,
    )


def done(request: PageRequest, url: str) -> HttpResponse:
    """The answer after a change: the browser goes to *url*, also out of a dialog."""
    return _lead_to(request, url)


class SignInForm(AuthenticationForm):
    """Username and password. One message for every reason, so accounts cannot be guessed."""

    error_messages = {
        "invalid_login": "The user name and password do not match an active account.",
        "inactive": "The user name and password do not match an active account.",
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["username"].label = "User name"
        for field in self.fields.values():
            field.widget.attrs["class"] = "input"

    def confirm_login_allowed(self, user: Any) -> None:
        """Refuse who could do nothing: no membership, or an inactive one, and no operator."""
        try:
            actor_of(user)
        except Unauthenticated:
            raise forms.ValidationError(
                self.error_messages["invalid_login"], code="invalid_login"
            ) from None


class SignIn(LoginView):
    """The one page without a session. ``next`` is followed on this host only."""

    authentication_form = SignInForm
    template_name = "agents/sign_in.html"
    redirect_authenticated_user = True

    def form_invalid(self, form: Any) -> HttpResponse:
        return self.render_to_response(self.get_context_data(form=form), status=422)


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    """End the session."""
    logout(request)
    return redirect(settings.LOGOUT_REDIRECT_URL)
