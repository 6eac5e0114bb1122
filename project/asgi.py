"""The web process: Django for pages and the API, raw programs beside it for the data plane.

The gateways and the two streams of the chat surface pass by Django's middleware, whose cost they
cannot afford; what they share with everything else is the policy, the errors and the writer.
"""

from __future__ import annotations

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
django.setup(set_prefix=False)

from project.web import build  # noqa: E402 - the apps must be ready first

application = build()
