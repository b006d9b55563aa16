"""What `halfmoon user` asks, done: from a question (questions.py) to its answer."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest

from halfmoon.auth.scram import BY_NUMBER
from halfmoon.schema.control import User
from halfmoon.services.credentials.questions import (
    MOST,
    Answer,
    Create,
    Delete,
    Describe,
    ListUsers,
    Question,
    SaltedPassword,
    SetFlags,
    SetPasswords,
    SetSecret,
    Shown,
)
from halfmoon.services.credentials.users import Upsertion, Users


def changes(question: Question) -> bool:
    """Whether it asks for a change."""
    return not isinstance(question, (Describe, ListUsers))


def answer(users: Users, question: Question) -> Answer:
    """Raises BrokerError, with nothing changed."""
    match question:
        case ListUsers():
            found = nsmallest(MOST, (each for each in users.all() if each.name > question.after), key=_name)
            return Answer(tuple(map(_shown, found)))
        case Describe():
            return Answer((_shown(users.find(question.name)),))
        case Create():
            users.create(question.name, _upsertions(question.name, question.passwords), admin=question.admin)
        case SetPasswords():
            users.set_passwords(question.name, _upsertions(question.name, question.passwords))
        case SetFlags():
            users.set_flags(question.name, disabled=question.disabled, admin=question.admin)
        case SetSecret():
            users.set_secret(question.name, question.secret)
        case Delete():
            users.delete(question.name)
    return Answer()


def _name(user: User) -> str:
    return user.name


def _upsertions(name: str, passwords: Sequence[SaltedPassword]) -> list[Upsertion]:
    return [Upsertion(name, each.mechanism, each.iterations, each.salt, each.salted_password) for each in passwords]


def _shown(user: User) -> Shown:
    mechanisms = tuple((BY_NUMBER[each.mechanism].name, each.iterations) for each in user.scram)
    return Shown(user.name, mechanisms, user.disabled, user.admin, bool(user.sealed))
