"""What all admin pages have in common: staff may look, and only services change anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from django import forms
from django.contrib import admin, messages
from django.db.models import Model
from django.http import HttpRequest, HttpResponse

from agents.errors import DomainError
from agents.forms import RationaleActionForm, ServiceForm
from agents.policy import Actor
from agents.selectors.identity import actor_of
from agents.transactions import joined

Row = TypeVar("Row", bound=Model)

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin
else:

    class ModelAdmin(admin.ModelAdmin):
        """Django's class takes its row type in brackets for type checkers only."""

        def __class_getitem__(cls, _row: type[Model]) -> type[ModelAdmin]:
            return cls


class OperatorAdmin(ModelAdmin[Row]):
    """Operators look at rows. Nothing is added, changed or deleted unless a subclass says so.

    An operator is whoever has ``is_staff``; Django's own table of permissions is not used.
    """

    list_per_page = 50
    show_full_result_count = False
    actions_on_bottom = False

    def has_module_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_active and request.user.is_staff)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_module_permission(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def each(
        self,
        request: HttpRequest,
        rows: Iterable[Row],
        service: Callable[[Actor, Row], object],
        done: str,
    ) -> None:
        """Call *service* for each row and tell what became of it, refusals included."""
        actor = actor_of(request.user)
        for row in rows:
            try:
                result = service(actor, row)
            except DomainError as refusal:
                self.message_user(request, f"{row}: {refusal.detail}", messages.ERROR)
            else:
                told = done if result is None else f"{done}: {result}"
                self.message_user(request, f"{row}: {told}", messages.SUCCESS)


class RationaleAdmin(OperatorAdmin[Row]):
    """Its list actions take a rationale, typed beside the action."""

    action_form = RationaleActionForm

    @staticmethod
    def rationale(request: HttpRequest) -> str:
        return request.POST.get("rationale", "")


class ServiceAdmin(OperatorAdmin[Row]):
    """Rows that operators add or change through a form whose save is a service.

    Django wraps these pages in a transaction; the service joins it, and a refusal rolls it back
    and shows the form again with the reason.
    """

    form: type[ServiceForm]
    #: Set once, when the row is made.
    fixed_fields: tuple[str, ...] = ()
    may_change = True

    def create(self, actor: Actor, cleaned: dict[str, Any]) -> Row:
        """Make the row through its service."""
        raise NotImplementedError

    def change(self, actor: Actor, row: Row, cleaned: dict[str, Any]) -> Row:
        """Change *row*, as it stands in the database, through its service."""
        raise NotImplementedError

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.has_module_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.may_change and self.has_module_permission(request)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        shown = [str(name) for name in super().get_readonly_fields(request, obj)]
        return shown if obj is None else [*shown, *self.fixed_fields]

    def get_form(
        self,
        request: HttpRequest,
        obj: Any = None,
        change: bool = False,  # noqa: FBT001, FBT002  # Django's signature
        **kwargs: Any,
    ) -> type[forms.ModelForm[Any]]:
        made = super().get_form(request, obj, change=change, **kwargs)
        refusal = getattr(request, "service_refusal", None)
        return type(made.__name__, (made,), {"refusal": refusal})

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        try:
            return super().changeform_view(request, object_id, form_url, extra_context)
        except DomainError as refusal:
            # What was written is rolled back by now; the same form fails on the reason.
            request.service_refusal = refusal  # type: ignore[attr-defined]  # read by get_form
            return super().changeform_view(request, object_id, form_url, extra_context)

    def save_model(
        self,
        request: HttpRequest,
        obj: Row,
        form: Any,
        change: bool,  # noqa: FBT001  # Django's signature
    ) -> None:
        """Let the service write. The form has altered *obj* already, so it gets a fresh row."""
        actor = actor_of(request.user)
        with joined():
            if change:
                row = self.model._default_manager.get(pk=obj.pk)
                saved = self.change(actor, row, form.cleaned_data)
            else:
                saved = self.create(actor, form.cleaned_data)
        obj.__dict__.update(saved.__dict__)

    def save_related(
        self,
        request: HttpRequest,
        form: Any,
        formsets: Any,
        change: bool,  # noqa: FBT001  # Django's signature
    ) -> None:
        """Nothing is left to do: the service wrote relations as well."""


def sealed_or_none(row: Any) -> str:
    """What a page says of a credential column."""
    return "none" if row.credential is None else "sealed"
