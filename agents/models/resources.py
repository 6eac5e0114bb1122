"""What can be granted: virtual models behind providers, tools behind connectors."""

from __future__ import annotations

from typing import Any

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from agents.choices import Classification, OutputLimitParameter, ToolState
from agents.models.base import Row, one_of
from agents.models.identity import Organization, User
from agents.models.sealing import SealedField, SealsFields


class ModelProvider(SealsFields, Row):
    """An upstream that speaks the OpenAI wire at ``base_url`` (…/v1), with a sealed credential."""

    organization = models.ForeignKey(Organization, models.PROTECT, related_name="providers")
    name = models.CharField(max_length=120)
    slug = models.SlugField(max_length=60)
    base_url = models.CharField(max_length=500)
    credential = SealedField(null=True, blank=True)
    output_limit_parameter = models.CharField(
        max_length=21,
        choices=OutputLimitParameter,
        default=OutputLimitParameter.MAX_TOKENS,
        help_text="How this provider is told the output limit. OpenAI's newer models know only "
        "max_completion_tokens; most other servers know max_tokens.",
    )
    enabled = models.BooleanField(default=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["organization", "slug"], name="provider_slug"),
            one_of("output_limit_parameter", OutputLimitParameter, "provider_output_limit"),
        ]

    def __str__(self) -> str:
        return self.name


class VirtualModel(Row):
    """A governed model resource. Limits are tokens; ``pricing_reference`` is ``provider:model``."""

    organization = models.ForeignKey(Organization, models.PROTECT, related_name="models")
    provider = models.ForeignKey(ModelProvider, models.PROTECT, related_name="models")
    name = models.CharField(max_length=120)
    slug = models.SlugField(max_length=60)
    upstream_model = models.CharField(max_length=200)
    pricing_reference = models.CharField(max_length=200, blank=True, default="")
    context_limit = models.PositiveIntegerField(
        default=32_768, validators=[MinValueValidator(256), MaxValueValidator(10_000_000)]
    )
    output_limit = models.PositiveIntegerField(
        default=2_048, validators=[MinValueValidator(1), MaxValueValidator(1_000_000)]
    )
    enabled = models.BooleanField(default=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["organization", "slug"], name="virtual_model_slug"),
        ]

    def __str__(self) -> str:
        return self.slug


class RateCard(Row):
    """An operator's price for one virtual model, in micro-dollars per million tokens.

    Rows are versions: the newest counts, none is edited. Zero is a price.
    """

    virtual_model = models.ForeignKey(VirtualModel, models.PROTECT, related_name="rate_cards")
    upstream_model = models.CharField(max_length=200)
    version = models.PositiveIntegerField()
    input_rate = models.PositiveBigIntegerField()
    output_rate = models.PositiveBigIntegerField()
    cache_read_rate = models.PositiveBigIntegerField()
    cache_write_rate = models.PositiveBigIntegerField()
    rationale = models.TextField()
    created_by = models.ForeignKey(User, models.PROTECT, null=True, related_name="+")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["virtual_model", "version"], name="rate_card_version"),
        ]


class Connector(SealsFields, Row):
    """An upstream MCP server. ``last_read_at`` is when its tools were last listed.

    ``read_started_at`` is when the newest reading began: claimed by one process at a time, and
    over once ``last_read_at`` has passed it.
    """

    organization = models.ForeignKey(Organization, models.PROTECT, related_name="connectors")
    name = models.CharField(max_length=120)
    slug = models.SlugField(max_length=40)
    url = models.CharField(max_length=500, blank=True, default="")
    credential = SealedField(null=True, blank=True)
    enabled = models.BooleanField(default=True)
    #: The reserved connector ``mandate``: its tools are ours and have no address.
    first_party = models.BooleanField(default=False)
    last_read_at = models.DateTimeField(null=True, blank=True)
    read_started_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_error = models.CharField(max_length=60, blank=True, default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["organization", "slug"], name="connector_slug"),
            models.CheckConstraint(
                condition=~models.Q(slug__contains="__"), name="connector_slug_separator"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Tool(Row):
    """One tool of a connector.

    The plain columns are what an operator accepted and what agents see. ``observed`` is what the
    server showed at the last reading when that differs (state ``changed``), for the diff.
    Everything here is public tool metadata, and the only text of that kind in the control store.
    """

    connector = models.ForeignKey(Connector, models.PROTECT, related_name="tools")
    name = models.CharField(max_length=255)
    exposed_name = models.CharField(max_length=64)
    title = models.CharField(max_length=255, blank=True, default="")
    description = models.TextField(blank=True, default="")
    input_schema: models.JSONField[dict[str, Any]] = models.JSONField(default=dict)
    annotations: models.JSONField[dict[str, Any]] = models.JSONField(default=dict)
    digest = models.CharField(max_length=64)
    observed: models.JSONField[dict[str, Any] | None] = models.JSONField(null=True, blank=True)
    classification = models.CharField(max_length=8, choices=Classification, blank=True, default="")
    state = models.CharField(max_length=10, choices=ToolState, default=ToolState.NEW)
    accepted_at = models.DateTimeField(null=True, blank=True)
    accepted_by = models.ForeignKey(User, models.PROTECT, null=True, blank=True, related_name="+")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["connector", "name"], name="tool_name"),
            models.UniqueConstraint(fields=["connector", "exposed_name"], name="tool_exposed"),
            one_of("state", ToolState, "tool_state"),
            models.CheckConstraint(
                condition=models.Q(classification__in=["", *Classification.values]),
                name="tool_classification",
            ),
        ]

    def __str__(self) -> str:
        return self.exposed_name

    @property
    def effective_classification(self) -> str:
        """Unclassified means ``action``."""
        return self.classification or Classification.ACTION
