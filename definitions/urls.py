"""Addresses of the agent pages."""

from django.urls import path

from definitions.pages import agents, publishing, suspension

urlpatterns = [
    path("agents/", agents.agents, name="agents"),
    path("agents/+new/", agents.new_agent, name="agent-new"),
    path("agents/<slug:slug>/", agents.agent, name="agent"),
    path("agents/<slug:slug>/publish/", publishing.publish, name="agent-publish"),
    path("agents/<slug:slug>/unpublish/", publishing.unpublish_page, name="agent-unpublish"),
    path("agents/<slug:slug>/suspend/", suspension.suspend, name="agent-suspend"),
    path("agents/<slug:slug>/resume/", suspension.resume, name="agent-resume"),
]
