"""What audit needs of a running node: its file, why something was decided, and what is read of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from halfmoon.server.audit_file import AuditFile
from halfmoon.services.acls.rules import ANY_NAME, DENY, PREFIXED
from halfmoon.services.audit.service import Explain, Why
from halfmoon.services.authorization.decisions import ALL, OPERATIONS, RESOURCE_TYPES

if TYPE_CHECKING:
    from halfmoon.adapters.tcp.access import Access
    from halfmoon.config.settings import Settings
    from halfmoon.core.metrics import Put
    from halfmoon.schema.control import AclRule
    from halfmoon.services.audit.lines import Use
    from halfmoon.services.audit.service import Audit

TURN_S = 1.0
"""How often the count of what was left out is looked for."""
_OPERATIONS = {number: name for name, number in OPERATIONS.items()} | {ALL: "all"}
_RESOURCE_TYPES = {number: name for name, number in RESOURCE_TYPES.items()}


class TopicLines(Protocol):
    """services/audit/topic.AuditTopic, or several."""

    @property
    def dropped(self) -> int:
        """Lines, since the start."""

    def put(self, line: bytes, *, echo: bool) -> None: ...


class Auditing:
    """A node's; where audit is off there is none."""

    def __init__(self, audit: Audit, topic: TopicLines, settings: Settings, access: Access | None) -> None:
        """Open the file, if there is to be one. `access` says why something is allowed. Raises StartError."""
        self._audit = audit
        self._topic = topic
        path = settings.security.audit.file
        self._file = None if path is None else AuditFile(Path(path))
        if self._file is not None:
            self._audit.sinks = (*self._audit.sinks, self._file)
        if access is not None:
            self._audit.explain = _explain_by(access)

    def turn(self) -> None:
        self._audit.turn()

    def reopen(self) -> None:
        """The file may have been moved away."""
        if self._file is not None:
            self._file.reopen()

    def stop(self) -> None:
        """After the last request."""
        if self._file is not None:
            self._file.stop()

    def warnings(self) -> list[str]:
        return [] if self._file is None else self._file.warnings()

    def metrics(self, put: Put) -> None:
        if self._file is not None:
            put("halfmoon_audit_dropped_total", self._file.dropped, "file")
        if self._topic in self._audit.sinks:
            put("halfmoon_audit_dropped_total", self._topic.dropped, "topic")


def _explain_by(access: Access) -> Explain:
    def explain(principal: str, host: str, use: Use) -> Why:
        operation, resource_type, name = use
        assert name is not None
        found = access.decide(principal, host, operation, resource_type, name, anew=False)
        return Why(found.allowed, found.reason, "" if found.rule is None else rule_text(found.rule))

    return explain


def rule_text(rule: AclRule) -> str:
    """In the broker's words: `deny User:alice read topic:orders* from 10.0.0.0/8`."""
    operation = _OPERATIONS.get(rule.operation, str(rule.operation))
    resource_type = _RESOURCE_TYPES.get(rule.resource_type, str(rule.resource_type))
    name = "" if resource_type == "cluster" else f":{rule.resource_name}{'*' * (rule.pattern_type == PREFIXED)}"
    host = "" if rule.host == ANY_NAME else f" from {rule.host}"
    permission = "deny" if rule.permission == DENY else "allow"
    return f"{permission} {rule.principal} {operation} {resource_type}{name}{host}"
