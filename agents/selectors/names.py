"""People's names for people."""

from __future__ import annotations

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser

from agents.models import User


def person_name(user: AbstractBaseUser | AnonymousUser | None) -> str:
    """The full name, else the sign-in name; empty for nobody."""
    if not isinstance(user, User):
        return ""
    return user.get_full_name() or user.get_username()
