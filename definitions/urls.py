"""Addresses of the agent pages."""

from django.urls import path

from definitions.pages import agents, publishing

urlpatterns = [
    path("agents/", agents.agents, name="agents"),
    path("agents/<slug:slug>/", agents.agent, name="agent"),
    path("agents/<slug:slug>/publish/", publishing.publish, name="agent-publish"),
    path("agents/<slug:slug>/unpublish/", publishing.unpublish_page, name="agent-unpublish"),
]
