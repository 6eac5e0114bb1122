"""Addresses of home, chat and the approvals inbox."""

from django.urls import path

from chat import pages

urlpatterns = [
    path("", pages.home, name="home"),
    path("chat/", pages.chat, name="chat"),
    path("chat/<slug:agent>/", pages.chat, name="chat"),
    path("chat/<slug:agent>/state/", pages.chat_state, name="chat-state"),
    path("chat/<slug:agent>/<str:thread>/", pages.chat, name="chat"),
    path("approvals/", pages.approvals, name="approvals"),
    path("approvals/count/", pages.approval_count, name="approval-count"),
]
