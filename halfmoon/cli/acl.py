"""`halfmoon acl`: add, remove and list access rules, on Halfmoon or on a Kafka; ask what they decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from halfmoon.cli import acl_rules, completing, outcomes, output
from halfmoon.cli.acl_rules import Target
from halfmoon.cli.asking import ask_about_security
from halfmoon.cli.brokers import Brokers
from halfmoon.cli.connect import connection
from halfmoon.cli.errors import CliError, describe_code
from halfmoon.cli.option_groups import option_groups
from halfmoon.cli.options import Output, OutputOption
from halfmoon.kafka_wire.messages import REQUESTS
from halfmoon.schema.control import AclRule
from halfmoon.services.acls.rules import ALLOW, ANY, CLUSTER_NAME, DENY, LITERAL, MATCH, PREFIXED, AclFilter
from halfmoon.services.security import Decide

DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS = 29, 30, 31
PRODUCER = {"topic": ("Write", "Describe", "Create"), "transactional-id": ("Write", "Describe")}
CONSUMER = {"topic": ("Read", "Describe"), "group": ("Read",)}
"""As kafka-acls.sh's shortcuts of these names."""

app = typer.Typer(help="Add, remove and list access rules; check what they allow.", no_args_is_help=True)

COLUMNS = ("permission", "principal", "host", "operation", "resource", "name", "pattern")


def _names(option: str, what: str, complete: Any = None) -> Any:
    return typer.Option(option, metavar="NAME", help=f"{what} Repeatable.", show_default=False, autocompletion=complete)


@dataclass(frozen=True)
class Resources:
    topic: Annotated[list[str] | None, _names("--topic", "A topic; '*' is every one.", completing.topics)] = None
    group: Annotated[list[str] | None, _names("--group", "A consumer group.", completing.groups)] = None
    transactional_id: Annotated[list[str] | None, _names("--transactional-id", "A transactional id.")] = None
    user: Annotated[list[str] | None, _names("--user", "A user whose tokens it is about, as User:alice.")] = None
    delegation_token: Annotated[list[str] | None, _names("--delegation-token", "A delegation token's id.")] = None
    cluster: Annotated[bool, typer.Option("--cluster", help="The cluster.")] = False

    def all(self) -> list[tuple[str, str]]:
        """Kind and name of each."""
        named = {
            "topic": self.topic, "group": self.group, "transactional-id": self.transactional_id, "user": self.user,
            "delegation-token": self.delegation_token, "cluster": [CLUSTER_NAME] if self.cluster else None,
        }  # fmt: skip
        return [(kind, name) for kind, names in named.items() for name in names or ()]


@dataclass(frozen=True)
class Whom:
    """Principals, as User:alice; User:* is everybody."""

    allow: Annotated[
        list[str] | None, typer.Option("--allow", metavar="PRINCIPAL", help="Whom to allow it: User:alice. Repeatable.")
    ] = None
    deny: Annotated[
        list[str] | None,
        typer.Option("--deny", metavar="PRINCIPAL", help="Whom to deny it. Repeatable."),
    ] = None
    host: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="ADDRESS", help="From this address or network only: 10.1.0.0/16. Repeatable."),
    ] = None

    def all(self) -> list[tuple[str, int]]:
        """Raises BadParameter."""
        return [
            (acl_rules.principal(name), permission)
            for names, permission in ((self.allow, ALLOW), (self.deny, DENY))
            for name in names or ()
        ]


Operations = Annotated[
    list[str],
    typer.Option("--operation", metavar="OPERATION", help="Read, Write, Create, Describe, …, or All. Repeatable."),
]
Prefixed = Annotated[bool, typer.Option("--prefixed", help="All resources whose names begin with these.")]
Producer = Annotated[
    bool,
    typer.Option("--producer", help="What a producer needs: Write, Describe, Create on --topic, and more."),
]
Consumer = Annotated[
    bool, typer.Option("--consumer", help="What a consumer needs: Read, Describe on --topic, Read on --group.")
]


@app.command()
@option_groups
def add(
    operation: Operations = [],
    producer: Producer = False,
    consumer: Consumer = False,
    prefixed: Prefixed = False,
    *,
    whom: Whom,
    resources: Resources,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Add access rules.

    One for each principal, operation, resource and host. A rule that denies wins over those that allow. What no rule
    allows is denied.
    """
    who, targets = whom.all(), _targets(resources, operation, producer, consumer)
    if not who:
        raise typer.BadParameter("whom is it about? --allow User:NAME, or --deny")
    if not targets:
        raise typer.BadParameter("what is it about? --topic, --group, --cluster, …")
    if not all(target.operations for target in targets):
        raise typer.BadParameter("what is it that they may do, or may not? --operation, --producer, --consumer")
    acl_rules.check_possible(targets)
    rules = acl_rules.made(targets, who, whom.host or [], prefixed=prefixed)
    request = REQUESTS[CREATE_ACLS]
    with connection(brokers, local=True) as broker:
        answers = broker.ask(CREATE_ACLS, creations=[
            request.AclCreation(
                resource_type=rule.resource_type, resource_name=rule.resource_name,
                resource_pattern_type=rule.pattern_type, principal=rule.principal, host=rule.host,
                operation=rule.operation, permission_type=rule.permission,
            )
            for rule in rules
        ]).results  # fmt: skip
    rows = [
        outcomes.row("rule", acl_rules.text(rule), _problem(answer), "added") | _fields(rule, result)
        for rule, answer in zip(rules, answers, strict=True)
    ]
    outcomes.report(rows, result, "rule")


@app.command()
@option_groups
def remove(
    operation: Operations = [],
    producer: Producer = False,
    consumer: Consumer = False,
    prefixed: Prefixed = False,
    *,
    whom: Whom,
    resources: Resources,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Remove access rules: all that match the options.

    What is not given matches any: `--topic orders` alone removes all rules with exactly this topic.
    """
    who, targets = whom.all(), _targets(resources, operation, producer, consumer)
    if not (who or targets or operation or whom.host):
        raise typer.BadParameter("which rules? Specify a principal or a resource; `halfmoon acl list` shows all")
    pattern = PREFIXED if prefixed else LITERAL
    wanted = acl_rules.filters(
        targets, who, whom.host or [], pattern, [acl_rules.operation(each) for each in operation]
    )
    request = REQUESTS[DELETE_ACLS]
    with connection(brokers, local=True) as broker:
        answers = broker.ask(
            DELETE_ACLS, filters=[request.DeleteAclsFilter(**_filter(each)) for each in wanted]
        ).filter_results
    rows: dict[AclRule, dict[str, Any]] = {}
    for answer in answers:
        if answer.error_code:
            raise CliError(_problem(answer) or "")
        for found in answer.matching_acls:
            rule = _rule(found, found)
            rows[rule] = outcomes.row("rule", acl_rules.text(rule), _problem(found), "removed") | _fields(rule, result)
    if not rows:
        raise CliError("no rule matches")
    outcomes.report(list(rows.values()), result, "rule")


@app.command("list")
@option_groups
def list_rules(
    principal: Annotated[
        list[str], typer.Option("--principal", metavar="PRINCIPAL", help="Rules with exactly this one. Repeatable.")
    ] = [],
    *,
    resources: Resources,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """List access rules: all, or those that are about a resource.

    `--topic orders` shows rules for this topic, for prefixes of its name, and for every topic.
    """
    who = [(acl_rules.principal(each), ANY) for each in principal]
    targets = [Target(kind, name, ()) for kind, name in resources.all()]
    found: set[AclRule] = set()
    with connection(brokers, local=True) as broker:
        for each in acl_rules.filters(targets, who, (), MATCH, ()):
            answer = broker.ask(DESCRIBE_ACLS, **_filter(each))
            if answer.error_code:
                raise CliError(_problem(answer) or "")
            found |= {_rule(shown, rule) for shown in answer.resources for rule in shown.acls}
    rows = [acl_rules.row(rule) for rule in found]
    rows.sort(key=lambda row: [row[each] for each in ("resource", "name", "pattern", "principal", *COLUMNS)])
    output.rows(rows, COLUMNS, result)


@app.command()
@option_groups
def check(
    principal: Annotated[str, typer.Argument(metavar="PRINCIPAL", show_default=False)],
    operation: Annotated[str, typer.Argument(metavar="OPERATION", show_default=False)],
    resource: Annotated[str, typer.Argument(metavar="RESOURCE", help="topic:orders, group:billing, cluster, …")],
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where the client is.")] = "127.0.0.1",
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Whether a principal may do something, and which rule says so.

    The broker answers as it would answer the client. The exit code is 0 for yes and 1 for no.
    """
    kind, name = acl_rules.resource(resource)
    number = acl_rules.operation(operation)
    acl_rules.check_possible([Target(kind, name, (number,))])
    what, type_name = acl_rules.words(number, kind)
    asked = Decide(acl_rules.principal(principal), host, what, type_name, name)
    decided = ask_about_security(brokers, asked).decided
    if decided is None:
        raise CliError("the broker sent an unexpected response")
    if result is Output.JSON:
        rule = None if decided.rule is None else acl_rules.row(decided.rule)
        output.json_document({"allowed": decided.allowed, "reason": decided.reason, "rule": rule})
    else:
        why = decided.reason if decided.rule is None else acl_rules.text(decided.rule)
        output.line(f"{'yes' if decided.allowed else 'no'}: {why}")
    if not decided.allowed:
        raise typer.Exit(1)


def _targets(resources: Resources, operations: Sequence[str], producer: bool, consumer: bool) -> list[Target]:
    """Raises BadParameter."""
    given = [acl_rules.operation(each) for each in operations]
    shortcuts = [*([PRODUCER] if producer else []), *([CONSUMER] if consumer else [])]
    if shortcuts and given:
        raise typer.BadParameter("--operation and --producer or --consumer exclude each other")
    if shortcuts and not resources.topic:
        raise typer.BadParameter("--producer and --consumer need --topic")
    if consumer and not resources.group:
        raise typer.BadParameter("--consumer needs --group")
    found = []
    for kind, name in resources.all():
        numbers = [acl_rules.operation(each) for shortcut in shortcuts for each in shortcut.get(kind, ())]
        if shortcuts and not numbers:
            raise typer.BadParameter(f"--producer and --consumer say nothing of a {kind}")
        found.append(Target(kind, name, tuple(dict.fromkeys(numbers or given))))
    return found


def _filter(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource_type, "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": wanted.pattern_type, "principal_filter": wanted.principal,
        "host_filter": wanted.host, "operation": wanted.operation, "permission_type": wanted.permission,
    }  # fmt: skip


def _rule(place: Any, rule: Any) -> AclRule:
    return AclRule(
        place.resource_type, place.resource_name, place.pattern_type, rule.principal, rule.host, rule.operation,
        rule.permission_type,
    )  # fmt: skip


def _fields(rule: AclRule, result: Output) -> dict[str, Any]:
    return acl_rules.row(rule) if result is Output.JSON else {}


def _problem(answer: Any) -> str | None:
    return describe_code(answer.error_code, answer.error_message) if answer.error_code else None
