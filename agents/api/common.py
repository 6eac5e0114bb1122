"""What the operations share: the organization they are about, pages of rows, secrets' texts."""

from typing import Annotated, Any

from django.db.models import QuerySet
from django.http import HttpRequest
from ninja import Query, Schema
from ninja.pagination import PaginationBase
from pydantic import Field, SecretStr

from agents.schemas.base import ContainmentOut, Slug
from agents.services.containment import Containment

PAGE_LIMIT = 200
OFFSET_LIMIT = 1_000_000

#: Operators say which tenant; everybody else may leave it out.
OrganizationSlug = Annotated[
    Slug | None,
    Query(None, description="Slug of the organization; operators must name it."),
]


class Pages(PaginationBase):
    """``limit`` (at most 200) and ``offset`` over an ordered queryset, with the whole count."""

    class Input(Schema):
        limit: Annotated[int, Field(ge=1, le=PAGE_LIMIT)] = 50
        offset: Annotated[int, Field(ge=0, le=OFFSET_LIMIT)] = 0

    def paginate_queryset(
        self, queryset: QuerySet[Any], pagination: Any, request: HttpRequest, **params: Any
    ) -> dict[str, Any]:
        start = pagination.offset
        return {
            "items": list(queryset[start : start + pagination.limit]),
            "count": queryset.count(),
        }


def secret_text(secret: SecretStr | None) -> str | None:
    """The text of a secret input; None means that it was not sent."""
    return None if secret is None else secret.get_secret_value()


def contained(ended: Containment) -> ContainmentOut:
    return ContainmentOut(
        seconds=round(ended.seconds, 3),
        keys_revoked=ended.keys_revoked,
        runs_stopped=ended.runs_stopped,
        approvals_voided=ended.approvals_voided,
    )
