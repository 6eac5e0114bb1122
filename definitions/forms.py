"""Forms of the agent page. They check shapes; the services decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.db.models import QuerySet

from agents.models import Team
from definitions.selectors.editor import ModelChoice, ToolChoice


def _text(rows: int, extra: str = "") -> forms.Textarea:
    return forms.Textarea(attrs={"class": f"input {extra}".strip(), "rows": rows})


class DraftForm(forms.Form):
    """The three parts of a definition, and the digest of the draft that the person saw."""

    instructions = forms.CharField(
        required=False, strip=False, widget=_text(16, "editor-instructions")
    )
    model = forms.ChoiceField(
        required=False,
        widget=forms.Select(attrs={"class": "input"}),
        help_text="A governed model: its operator decides provider, limits and price.",
    )
    tools = forms.MultipleChoiceField(required=False)
    base = forms.CharField(max_length=64, widget=forms.HiddenInput)
    #: The digest of the other person's draft, when this one shall replace it.
    overwrite = forms.CharField(max_length=64, required=False, widget=forms.HiddenInput)

    def __init__(
        self, models: Sequence[ModelChoice], tools: Sequence[ToolChoice], *args: Any, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.offered_models, self.offered_tools = models, tools
        model, tool = self.fields["model"], self.fields["tools"]
        assert isinstance(model, forms.ChoiceField)
        assert isinstance(tool, forms.ChoiceField)
        model.choices = [("", "Choose a model"), *((str(m.id), m.label) for m in models)]
        tool.choices = [(str(t.tool.id), t.name) for t in tools]


class RationaleForm(forms.Form):
    """Why somebody publishes or unpublishes."""

    rationale = forms.CharField(
        label="Why",
        max_length=2_000,
        widget=_text(3),
        help_text="Kept with the version and in the audit, so it holds no instructions.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.is_bound:
            # A dialog that is drawn anew for another environment keeps what was typed.
            self.fields["rationale"].widget.attrs["hx-preserve"] = "true"


class PublishForm(RationaleForm):
    """Exactly which definition goes where. ``version`` publishes an existing one again."""

    environment = forms.SlugField()
    digest = forms.CharField(max_length=64)
    version = forms.IntegerField(required=False, min_value=1)
    key = forms.CharField(max_length=128)


class SuspensionForm(RationaleForm):
    """Why an agent is stopped everywhere, or works again."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["rationale"].help_text = "Kept in the audit, so it holds no instructions."


class NewAgentForm(forms.Form):
    """An identity in one of the person's teams, with an empty draft."""

    name = forms.CharField(max_length=120, widget=forms.TextInput(attrs={"class": "input"}))
    slug = forms.SlugField(
        max_length=40,
        widget=forms.TextInput(attrs={"class": "input input-mono", "autocomplete": "off"}),
        help_text="Its name in addresses: 1 to 40 of a-z, 0-9 and single hyphens. It stays.",
    )
    team = forms.ModelChoiceField(
        Team.objects.none(), empty_label=None, widget=forms.Select(attrs={"class": "input"})
    )

    def __init__(self, teams: QuerySet[Team], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        team = self.fields["team"]
        assert isinstance(team, forms.ModelChoiceField)
        team.queryset = teams


class UnpublishForm(RationaleForm):
    environment = forms.SlugField()
