"""Questions about scheduled messages, as both protocols ask them: who may ask what, and the answer as bytes.

Describe on the topic that a message goes to is enough to be told of it, Read to be told its key and headers. Cancelling
needs Delete there, as DeleteRecords does, and rescheduling Alter. A redelivery goes to the group's retry topic, which
follows the group (decision 0152): Describe on the group, and Delete to change it, are enough, too.
"""

from __future__ import annotations

import msgspec

from halfmoon.adapters.tcp.access import Rights, Use, check
from halfmoon.core.steps import Slices
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema.group_topics import retry_topic, retrying_group
from halfmoon.services.delays.questions import Answer, Cancel, Count, List, Question, Reschedule
from halfmoon.services.delays.service import Delays

_question = msgspec.json.Decoder(List | Count | Cancel | Reschedule)
_WILD = frozenset("*?[")


def decoded(body: bytes | memoryview) -> Question:
    """Raises BrokerError(INVALID_REQUEST)."""
    try:
        question: Question = _question.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BrokerError(Fault.INVALID_REQUEST, str(error)) from None
    return question


def changes(question: Question) -> bool:
    return isinstance(question, (Cancel, Reschedule))


def check_named(question: Question, rights: Rights | None) -> None:
    """A topic or group that is named, and by no pattern, must be one that who asks may describe; what patterns find is
    left out where it may not be. Raises BrokerError."""
    selection = question.selection
    if rights is None or selection is None:
        return
    if selection.topic is not None and _WILD.isdisjoint(selection.topic):
        check(rights, ("describe", "topic", selection.topic))
    if selection.group is not None and _WILD.isdisjoint(selection.group):
        check(rights, *_either("describe", retry_topic(selection.group), selection.group))


class DelayRights:
    """As of services/delays/ports.Rights."""

    def __init__(self, rights: Rights | None) -> None:
        """None: everything."""
        self._rights = rights

    def describes(self, topic: str, group: str | None) -> bool:
        return self._rights is None or self._rights.allows_either(*_either("describe", topic, group))

    def reads(self, topic: str, group: str | None) -> bool:
        return self._rights is None or self._rights.allows(("read", "topic", topic))

    def cancels(self, topic: str, group: str | None) -> bool:
        return self._rights is None or self._rights.demands(_either("delete", topic, group))

    def reschedules(self, topic: str, group: str | None) -> bool:
        return self._rights is None or self._rights.demands(_either("alter", topic, group))


def _either(operation: str, topic: str, group: str | None) -> tuple[Use, ...]:
    """Where one of them is enough."""
    on_topic = operation, "topic", topic
    if group is None:
        return (on_topic,)
    return ("describe" if operation == "describe" else "delete", "group", group), on_topic


def tell_changes(question: Question, answer: Answer, rights: Rights | None) -> None:
    """Of what another process has changed for a client, which it may: audit is told here, where the client is."""
    if rights is not None and answer.changed is not None:
        mine = DelayRights(rights)
        for topic in answer.changed.topics:
            may = mine.cancels if isinstance(question, Cancel) else mine.reschedules
            may(topic, retrying_group(topic))


def worked_out(delays: Delays | None, question: Question, rights: Rights | None) -> Slices[bytes]:
    """The answer as JSON: to be told once the log is durable up to its end of then. Raises BrokerError, OSError."""
    if delays is None:
        raise BrokerError(Fault.UNSUPPORTED_VERSION, "services.delays is off")
    answer = yield from delays.ask(question, DelayRights(rights))
    encoded: bytes = yield lambda: msgspec.json.encode(answer)
    return encoded


def refused(error: BrokerError) -> bytes:
    return msgspec.json.encode(Answer(fault=error.fault.name, message=error.message))
