"""Definitions by digest, for operators. Their text is content and shown nowhere here."""

from __future__ import annotations

from django.contrib import admin

from agents.admin.base import OperatorAdmin
from definitions.models import Draft, Publication, Version


@admin.register(Draft)
class DraftAdmin(OperatorAdmin[Draft]):
    list_display = ["agent", "digest", "updated_at", "updated_by"]
    list_select_related = ["agent", "updated_by"]
    search_fields = ["agent__slug"]


@admin.register(Version)
class VersionAdmin(OperatorAdmin[Version]):
    list_display = ["agent", "number", "digest", "created_at", "created_by"]
    list_select_related = ["agent", "created_by"]
    search_fields = ["agent__slug", "digest"]
    ordering = ["-created_at"]


@admin.register(Publication)
class PublicationAdmin(OperatorAdmin[Publication]):
    list_display = ["agent", "environment", "version", "published_at", "published_by"]
    list_select_related = ["agent", "environment", "version", "published_by"]
    list_filter = ["environment__slug"]
    search_fields = ["agent__slug"]
