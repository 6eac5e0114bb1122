"""Admit people: add an account that exists, or make one with an initial password."""

from __future__ import annotations

from django.contrib.auth.hashers import make_password
from django.contrib.auth.password_validation import validate_password
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError

from agents.errors import Conflict, Invalid, NotFound
from agents.models import Membership, Organization, Team, User
from agents.policy import Actor, require_operator
from agents.services.identity import add_member_step
from agents.transactions import durable

USERNAME_LIMIT = 150


def admit_member(
    *,
    actor: Actor,
    organization: Organization,
    username: str,
    password: str | None,
    role: str,
    teams: list[Team],
) -> Membership:
    """Give a person its one place in *organization*.

    With a password a new account is made; without one the account must exist and be free.
    Raises Conflict when the name is taken or belongs somewhere already, NotFound, Invalid.
    """
    require_operator(actor)
    username = User.normalize_username(username.strip())
    if password is None:
        return _admit(actor, organization, username, None, role, teams)
    _check_account(username, password)
    # Hashing takes long on purpose; no database lock waits for it.
    return _admit(actor, organization, username, make_password(password), role, teams)


@durable()
def _admit(
    actor: Actor,
    organization: Organization,
    username: str,
    hashed: str | None,
    role: str,
    teams: list[Team],
) -> Membership:
    user = User.objects.filter(username=username).first()
    if hashed is None:
        if user is None:
            raise NotFound("There is no such account.")
    else:
        if user is not None:
            raise Conflict("An account with this name exists.", field="username")
        user = User.objects.create(username=username, password=hashed)
    return add_member_step(actor, organization, user, role, teams)


def _check_account(username: str, password: str) -> None:
    try:
        UnicodeUsernameValidator()(username)
    except ValidationError:
        raise Invalid(
            "A user name has letters, digits and @ . + - _ only.", field="username"
        ) from None
    if not 1 <= len(username) <= USERNAME_LIMIT:
        raise Invalid("A user name has 1 to 150 characters.", field="username")
    try:
        validate_password(password, User(username=username))
    except ValidationError as error:
        raise Invalid(" ".join(error.messages), field="password") from None
