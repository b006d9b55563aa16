"""`halfmoon user`: create, list, describe, change and delete users."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from halfmoon.auth.scram import MECHANISMS, MIN_ITERATIONS
from halfmoon.cli import outcomes, output, passwords
from halfmoon.cli.asking import ask_about_users
from halfmoon.cli.brokers import Brokers
from halfmoon.cli.errors import CliError
from halfmoon.cli.option_groups import option_groups
from halfmoon.cli.options import Output, OutputOption
from halfmoon.services.credentials.questions import (
    MOST,
    Create,
    Delete,
    Describe,
    ListUsers,
    Question,
    SetFlags,
    SetPasswords,
    SetSecret,
    Shown,
)

app = typer.Typer(help="Create, list, change and delete users.", no_args_is_help=True)

UserName = Annotated[str, typer.Argument(metavar="USER", show_default=False)]
UserNames = Annotated[list[str], typer.Argument(metavar="USER...", show_default=False)]
COLUMNS = ("user", "mechanisms", "admin", "disabled", "rocketmq")


@app.command()
@option_groups
def create(
    user: UserName,
    admin: Annotated[bool, typer.Option("--admin", help="An administrator, who may do everything.")] = False,
    password_file: passwords.FileOption = None,
    generate: passwords.GenerateOption = False,
    mechanism: passwords.MechanismOption = list(MECHANISMS),
    iterations: passwords.IterationsOption = MIN_ITERATIONS,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Create a user with a password.

    The password comes from a prompt, a file or chance, and does not leave this machine. The broker gets a salted hash,
    which is enough to log in with SCRAM: use TLS, or run this on the broker's machine.
    """
    password, generated = passwords.given(f"password of {user}", password_file, generate)
    salted = passwords.salted(password, mechanism, iterations)
    ask_about_users(brokers, Create(user, salted, admin))
    _report(user, "created", password if generated else None, result)


@app.command()
@option_groups
def passwd(
    user: UserName,
    password_file: passwords.FileOption = None,
    generate: passwords.GenerateOption = False,
    mechanism: passwords.MechanismOption = list(MECHANISMS),
    iterations: passwords.IterationsOption = MIN_ITERATIONS,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Set a user's password.

    It replaces those of all mechanisms. Connections that have logged in with the old one stay.
    """
    password, generated = passwords.given(f"new password of {user}", password_file, generate)
    salted = passwords.salted(password, mechanism, iterations)
    ask_about_users(brokers, SetPasswords(user, salted))
    _report(user, "password set", password if generated else None, result)


@app.command()
@option_groups
def secret(
    user: UserName,
    rocketmq: Annotated[bool, typer.Option("--rocketmq", help="The secret key of RocketMQ's clients.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="The user is to have none.")] = False,
    password_file: passwords.FileOption = None,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Set the secret key of a user's RocketMQ clients.

    The access key is the user's name. The secret is generated and printed once, or read from a file. The broker gets it
    as it is, and keeps it encrypted: use TLS, or run this on the broker's machine.
    """
    if not rocketmq:
        raise typer.BadParameter("which secret? --rocketmq is the only kind")
    if remove:
        if password_file is not None:
            raise typer.BadParameter("--remove needs no secret")
        ask_about_users(brokers, SetSecret(user, None))
        _report(user, "secret removed", None, result)
        return
    chosen, generated = passwords.given(f"secret of {user}", password_file, generate=password_file is None)
    ask_about_users(brokers, SetSecret(user, chosen))
    _report(user, "secret set", chosen if generated else None, result)


@app.command("list")
@option_groups
def list_users(*, brokers: Brokers, result: OutputOption = Output.TEXT) -> None:
    """List users."""
    found: list[Shown] = []
    while True:
        part = ask_about_users(brokers, ListUsers(found[-1].name if found else "")).users
        found += part
        if len(part) < MOST:
            break
    output.rows([_row(each) for each in found], COLUMNS, result)


@app.command()
@option_groups
def describe(
    user: UserName,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Show what a user may log in with."""
    (found,) = ask_about_users(brokers, Describe(user)).users
    row = _row(found)
    if result is Output.JSON:
        mechanisms = [{"mechanism": name, "iterations": iterations} for name, iterations in found.mechanisms]
        output.json_document({**row, "mechanisms": mechanisms})
        return
    output.facts({**row, "mechanisms": [f"{name} ({iterations})" for name, iterations in found.mechanisms]})


@app.command()
@option_groups
def delete(
    users: UserNames,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Delete users, and their delegation tokens."""
    _each(brokers, ((user, Delete(user)) for user in users), "deleted", result)


@app.command()
@option_groups
def disable(
    users: UserNames,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Keep users from logging in. They keep their passwords."""
    _each(brokers, ((user, SetFlags(user, disabled=True)) for user in users), "disabled", result)


@app.command()
@option_groups
def enable(
    users: UserNames,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Let users log in again."""
    _each(brokers, ((user, SetFlags(user, disabled=False)) for user in users), "enabled", result)


@app.command("admin")
@option_groups
def set_admin(
    users: UserNames,
    revoke: Annotated[bool, typer.Option("--revoke", help="They are to be administrators no more.")] = False,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Make users administrators, who may do everything."""
    done = "no administrator" if revoke else "administrator"
    _each(brokers, ((user, SetFlags(user, admin=not revoke)) for user in users), done, result)


def _each(brokers: Brokers, asked: Iterable[tuple[str, Question]], done: str, result: Output) -> None:
    rows = []
    for user, question in asked:
        problem = None
        try:
            ask_about_users(brokers, question)
        except CliError as error:
            problem = str(error)
        rows.append(outcomes.row("user", user, problem, done))
    outcomes.report(rows, result, "user")


def _report(user: str, done: str, generated: str | None, result: Output) -> None:
    """`generated`: a password that nobody knows yet."""
    if result is Output.JSON:
        shown = {} if generated is None else {"password": generated}
        output.json_document([outcomes.row("user", user, None, done, **shown)])
        return
    output.line(f"{user}: {done}" if generated is None else f"{user}: {done}: {generated}")


def _row(user: Shown) -> dict[str, Any]:
    return {
        "user": user.name,
        "mechanisms": [name for name, _ in user.mechanisms],
        "admin": user.admin,
        "disabled": user.disabled,
        "rocketmq": user.rocketmq,
    }
