"""Threads and chat tokens by id, for operators. Titles and messages are content."""

from __future__ import annotations

from django.contrib import admin

from agents.admin.base import OperatorAdmin
from chat.models import ChatToken, Thread


@admin.register(Thread)
class ThreadAdmin(OperatorAdmin[Thread]):
    list_display = ["id", "agent", "environment", "principal_kind", "active_at", "deleted_at"]
    list_filter = ["principal_kind", "environment__slug"]
    list_select_related = ["agent", "environment"]
    search_fields = ["id", "agent__slug"]
    ordering = ["-active_at"]


@admin.register(ChatToken)
class ChatTokenAdmin(OperatorAdmin[ChatToken]):
    """The text exists nowhere, and its digest is not shown."""

    list_display = ["accessor", "principal_kind", "agent", "environment", "expires_at"]
    list_filter = ["principal_kind", "environment__slug"]
    list_select_related = ["agent", "environment"]
    search_fields = ["accessor"]
    fields = [
        "accessor", "principal_kind", "principal_issuer", "principal_subject", "agent",
        "environment", "user", "key", "created_at", "expires_at",
    ]  # fmt: skip
