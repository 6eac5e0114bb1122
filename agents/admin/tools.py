"""Tools and their review: an operator accepts exactly the definition that was shown."""

from __future__ import annotations

import difflib
import json
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.forms import formset_factory
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html

from agents.admin.base import RationaleAdmin
from agents.errors import DomainError
from agents.forms import ToolReviewForm
from agents.models import Tool
from agents.policy import Actor
from agents.selectors.identity import actor_of
from agents.services import tools

ReviewFormSet = formset_factory(ToolReviewForm, extra=0, max_num=200, absolute_max=200)
SHOWN = ("title", "description", "input_schema", "annotations")


def definition_text(members: dict[str, Any]) -> str:
    """A definition as people read it: one JSON member a line, keys sorted."""
    return json.dumps(members, indent=2, sort_keys=True, ensure_ascii=False)


def accepted_text(tool: Tool) -> str:
    return definition_text({name: getattr(tool, name) for name in SHOWN})


def offered_text(tool: Tool) -> str:
    """What a review would accept: the server's last word."""
    if tool.observed is None:
        return accepted_text(tool)
    return definition_text({name: tool.observed.get(name) for name in SHOWN})


def difference(tool: Tool) -> str:
    """The lines that changed since the tool was accepted; empty when none did."""
    before, after = accepted_text(tool).splitlines(), offered_text(tool).splitlines()
    return "\n".join(difflib.unified_diff(before, after, "accepted", "now", lineterm=""))


@admin.register(Tool)
class ToolAdmin(RationaleAdmin[Tool]):
    list_display = ["exposed_name", "connector", "state", "classification", "accepted_at"]
    list_filter = ["state", "classification", "connector"]
    list_select_related = ["connector"]
    search_fields = ["exposed_name", "name"]
    fields = [
        "exposed_name", "name", "connector", "state", "classification", "digest", "definition",
        "changes", "accepted_at", "accepted_by",
    ]  # fmt: skip
    readonly_fields = ["definition", "changes"]
    actions = ["review", "withdraw"]

    @admin.display(description="definition")
    def definition(self, row: Tool) -> str:
        return format_html("<pre>{}</pre>", accepted_text(row))

    @admin.display(description="changes since accepted")
    def changes(self, row: Tool) -> str:
        return format_html("<pre>{}</pre>", difference(row) or "none")

    @admin.action(description="Review: accept exactly what is shown next")
    def review(self, request: HttpRequest, queryset: QuerySet[Tool]) -> HttpResponse:
        """Show what would be accepted; the page posts to :meth:`review_view`."""
        rows = list(queryset.select_related("connector").order_by("exposed_name")[:200])
        initial = [
            {
                "tool_id": row.id,
                "digest_seen": row.observed["digest"] if row.observed else row.digest,
                "accept": False,
                "classification": row.effective_classification,
            }
            for row in rows
        ]
        forms = ReviewFormSet(initial=initial, prefix="review")
        shown = [
            {"tool": row, "form": form, "text": offered_text(row), "difference": difference(row)}
            for row, form in zip(rows, forms, strict=True)
        ]
        context = {
            **self.admin_site.each_context(request),
            "title": "Review tools",
            "opts": self.opts,
            "formset": forms,
            "shown": shown,
            "rationale": self.rationale(request),
        }
        return TemplateResponse(request, "admin/agents/tool/review.html", context)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.review_view)
        return [path("review/", view, name="agents_tool_review"), *super().get_urls()]

    def review_view(self, request: HttpRequest) -> HttpResponse:
        """Accept the ticked tools, each under the digest that its page showed."""
        back = HttpResponseRedirect(reverse(f"{self.admin_site.name}:agents_tool_changelist"))
        if request.method != "POST":
            return back
        forms = ReviewFormSet(request.POST, prefix="review")
        if not forms.is_valid():
            self.message_user(request, "The review was incomplete.", messages.ERROR)
            return back
        why = self.rationale(request)
        actor = actor_of(request.user)
        for form in forms:
            if form.cleaned_data.get("accept"):
                self._accept(request, actor, form.cleaned_data, why)
        return back

    def _accept(
        self, request: HttpRequest, actor: Actor, cleaned: dict[str, Any], why: str
    ) -> None:
        tool = Tool.objects.filter(id=cleaned["tool_id"]).first()
        if tool is None:
            return
        try:
            tools.review_tool(
                actor=actor,
                tool=tool,
                digest_seen=cleaned["digest_seen"],
                classification=cleaned["classification"],
                rationale=why,
            )
        except DomainError as refusal:
            self.message_user(request, f"{tool}: {refusal.detail}", messages.ERROR)
        else:
            told = f"{tool}: accepted as {cleaned['classification']}"
            self.message_user(request, told, messages.SUCCESS)

    @admin.action(description="Withdraw: not callable until reviewed again")
    def withdraw(self, request: HttpRequest, queryset: QuerySet[Tool]) -> None:
        why = self.rationale(request)

        def service(actor: Actor, row: Tool) -> None:
            tools.withdraw_tool(actor=actor, tool=row, rationale=why)

        self.each(request, queryset.select_related("connector"), service, "withdrawn")
