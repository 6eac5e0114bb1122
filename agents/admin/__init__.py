"""The operators' admin: read-mostly; every change is a service's, with its audit event."""

from agents.admin import identity, observing, resources, rights, tools

__all__ = ["identity", "observing", "resources", "rights", "tools"]
