"""Addresses of the agent pages."""

from django.urls import path

from definitions import pages

urlpatterns = [
    path("agents/", pages.agents, name="agents"),
    path("agents/<slug:slug>/", pages.agent, name="agent"),
    path("agents/<slug:slug>/publish/", pages.publish, name="agent-publish"),
    path("agents/<slug:slug>/unpublish/", pages.unpublish_page, name="agent-unpublish"),
]
