"""Forms of the operators' admin. They check shapes; the services decide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib.admin.helpers import ActionForm

from agents.choices import Classification
from agents.errors import DomainError
from agents.models import (
    Connector,
    Environment,
    Membership,
    ModelProvider,
    Organization,
    RateCard,
    Team,
    VirtualModel,
)

if TYPE_CHECKING:
    AnyModelForm = forms.ModelForm[Any]
else:
    AnyModelForm = forms.ModelForm

KEEP_HELP = "Sealed and never shown again. Leave it empty to keep what is stored."


class ServiceForm(AnyModelForm):
    """A form whose data goes to a service; the service's refusal comes back as a form error.

    ``refusal`` is set on a subclass that the admin makes for one request.
    """

    refusal: ClassVar[DomainError | None] = None

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if self.refusal is not None:
            named = self.refusal.extra.get("field")
            field = next((f for f in (named, f"new_{named}") if f in self.fields), None)
            self.add_error(field, self.refusal.detail)
        return cleaned


class OrganizationForm(ServiceForm):
    class Meta:
        model = Organization
        fields = ["name", "slug"]


class TeamForm(ServiceForm):
    class Meta:
        model = Team
        fields = ["organization", "name", "slug"]


class EnvironmentForm(ServiceForm):
    class Meta:
        model = Environment
        fields = ["organization", "name", "slug"]


class MembershipForm(ServiceForm):
    """A person's place; with a password the account is made as well."""

    username = forms.CharField(max_length=150)
    new_password = forms.CharField(
        label="Initial password",
        required=False,
        strip=False,
        max_length=256,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text="For a new account. Leave it empty to add an account that exists.",
    )

    class Meta:
        model = Membership
        fields = ["organization", "role", "active", "teams"]


class CredentialForm(ServiceForm):
    """An upstream's address with its credential, which only ever goes in."""

    new_credential = forms.CharField(
        label="Credential",
        required=False,
        strip=False,
        max_length=4_096,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        help_text=KEEP_HELP,
    )


class ProviderForm(CredentialForm):
    class Meta:
        model = ModelProvider
        fields = ["organization", "name", "slug", "base_url", "output_limit_parameter", "enabled"]


class ConnectorForm(CredentialForm):
    class Meta:
        model = Connector
        fields = ["organization", "name", "slug", "url", "enabled"]


class VirtualModelForm(ServiceForm):
    class Meta:
        model = VirtualModel
        fields = [
            "provider",
            "name",
            "slug",
            "upstream_model",
            "pricing_reference",
            "context_limit",
            "output_limit",
            "enabled",
        ]


class RateCardForm(ServiceForm):
    class Meta:
        model = RateCard
        fields = [
            "virtual_model",
            "input_rate",
            "output_rate",
            "cache_read_rate",
            "cache_write_rate",
            "rationale",
        ]
        help_texts = dict.fromkeys(
            ("input_rate", "output_rate", "cache_read_rate", "cache_write_rate"),
            "Micro-dollars per million tokens; zero is a price.",
        )


class RationaleActionForm(ActionForm):
    """The row of list actions, with the reason that some of them need."""

    rationale = forms.CharField(
        required=False,
        max_length=2_000,
        label="Rationale",
        widget=forms.TextInput(attrs={"placeholder": "why (kept in the audit log)"}),
    )


class ToolReviewForm(forms.Form):
    """An operator's word on one tool, exactly as it was shown."""

    tool_id = forms.UUIDField(widget=forms.HiddenInput)
    digest_seen = forms.RegexField(r"^[0-9a-f]{64}$", widget=forms.HiddenInput)
    accept = forms.BooleanField(required=False)
    classification = forms.ChoiceField(
        choices=Classification.choices,
        widget=forms.RadioSelect,
        initial=Classification.ACTION,
    )
