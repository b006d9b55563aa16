"""Every request with a JSON body, written in every way that fastjson takes: the broker does and answers the same."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rocketmq_rig import Rig, RigClient

from halfmoon.adapters.rocketmq import request
from halfmoon.adapters.rocketmq.registry import REQUESTS
from halfmoon.remoting.codes import Code
from halfmoon.services.credentials.users import Users

FOLDER = Path(request.__path__[0])

SUBSCRIPTION = {
    "topic": "orders", "subString": "a", "tagsSet": ["a"], "codeSet": [97], "subVersion": 5, "expressionType": "TAG",
    "classFilterMode": False,
}  # fmt: skip
QUEUE = {"topic": "orders", "brokerName": "halfmoon", "queueId": 0}
LOCK = {"consumerGroup": "g", "clientId": "c1", "mqSet": [QUEUE]}
POLICIES = {"subject": "User:u", "policies": [{"policyType": "Custom", "entries": [
    {"resource": "Topic:orders", "actions": ["Sub"], "sourceIps": ["10.0.0.1"], "decision": "Allow"},
]}]}  # fmt: skip
FIELDS = {3001: {"username": "v"}, 3002: {"username": "u"}, 3006: {"subject": "User:u"}}
BODIES: dict[int, dict[str, Any]] = {
    34: {
        "clientID": "c1",
        "producerDataSet": [{"groupName": "p"}],
        "consumerDataSet": [
            {
                "groupName": "h", "consumeType": "CONSUME_ACTIVELY", "messageModel": "BROADCASTING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [SUBSCRIPTION],
            }
        ],
    },
    41: LOCK,
    42: LOCK,
    46: {"clientId": "c1", "group": "g", "subscriptionData": SUBSCRIPTION},
    400: {
        "topic": "orders", "consumerGroup": "g", "clientId": "c1", "strategyName": "AVG", "messageModel": "CLUSTERING",
    },
    3001: {"username": "v", "password": "p", "userType": "Super", "userStatus": "enable"},
    3002: {"username": "u", "password": "p", "userType": "Super", "userStatus": "enable"},
    3006: POLICIES,
}  # fmt: skip
"""By request code: a body as Java writes it."""

ENUMS = {
    "CONSUME_ACTIVELY": 0, "BROADCASTING": 0, "CLUSTERING": 1, "CONSUME_FROM_FIRST_OFFSET": 4,
}  # fmt: skip


def each(change: Callable[[Any], Any]) -> Callable[[dict[str, Any]], str]:
    """The body in JSON, with each value that is no list and no object changed."""

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: walk(inner) for name, inner in value.items()}
        return [walk(inner) for inner in value] if isinstance(value, list) else change(value)

    return lambda body: json.dumps(walk(body))


def numbers(form: Callable[[int], object]) -> Callable[[dict[str, Any]], str]:
    return each(lambda value: form(value) if type(value) is int else value)


def flags(form: Callable[[bool], object]) -> Callable[[dict[str, Any]], str]:
    return each(lambda value: form(value) if isinstance(value, bool) else value)


def objects(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[dict[str, Any]], str]:
    """The body in JSON, with each object changed."""

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return change({name: walk(inner) for name, inner in value.items()})
        return [walk(inner) for inner in value] if isinstance(value, list) else value

    return lambda body: json.dumps(walk(body))


def single(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: single(inner) for name, inner in value.items()}
    return single(value[0]) if isinstance(value, list) else value


DEFAULTS = (0, False, "TAG", "CLUSTERING")
"""Values that a field has where it is missing or null."""


def unquoted(body: dict[str, Any]) -> str:
    return re.sub(r'"(\w+)":', r"\1:", json.dumps(body))


LENIENCIES: dict[str, Callable[[dict[str, Any]], str]] = {
    "numbers in strings": numbers(str),
    "numbers with a fraction": numbers(lambda number: number + 0.5),
    "numbers with a fraction, in strings": numbers(lambda number: f"{number}.0"),
    "booleans as words": flags(lambda flag: str(flag).lower()),
    "booleans as words in capitals": flags(lambda flag: str(flag).upper()),
    "booleans as digits": flags(int),
    "booleans as digits in strings": flags(lambda flag: str(int(flag))),
    "booleans as a letter": flags(lambda flag: "T" if flag else "F"),
    "enums in lower case": each(lambda value: value.lower() if value in ENUMS else value),
    "enums as numbers": each(lambda value: ENUMS.get(value, value) if isinstance(value, str) else value),
    "missing fields": objects(lambda made: {name: value for name, value in made.items() if value not in DEFAULTS}),
    "nulls": objects(lambda made: {name: None if value in DEFAULTS else value for name, value in made.items()}),
    "nulls in lists": objects(
        lambda made: {name: [*value, None] if isinstance(value, list) else value for name, value in made.items()}
    ),
    "empty strings for numbers and booleans": objects(
        lambda made: {name: "" if value in (0, False) else value for name, value in made.items()}
    ),
    "unknown fields": objects(lambda made: {"unitMode": True, "more": [{"a": None}], **made}),
    "single values for lists": lambda body: json.dumps(single(body)),
    "unquoted keys": unquoted,
    "single quotes": lambda body: json.dumps(body).replace('"', "'"),
    "number keys": lambda body: "{1:2," + json.dumps(body)[1:],
    "spare commas": lambda body: json.dumps(body).replace("}", ",}").replace("]", ",,]"),
    "comments": lambda body: "/* a */" + json.dumps(body).replace(",", ",// b\n"),
    "a byte order mark": lambda body: "\ufeff" + json.dumps(body),
    "escapes of Java": lambda body: json.dumps(body).replace("orders", "\\x6frders"),
}


def outcome(code: int, body: str) -> object:
    """The answer to a request, and what others see after it."""
    rig = Rig()
    rig.broker.create_topic("orders", 2)
    client: RigClient = rig.client()
    client.beat("c1", g=[("orders", "*")])
    if code == 42:
        client.well(41, json.dumps(LOCK).encode())
    users = rig.broker.services.get(Users)
    users.create("u", secret="of u")
    answer = client.well(code, body.encode(), **FIELDS.get(code, {}))
    groups = [client.ask(203, consumerGroup=group) for group in ("g", "h")]
    other = client.well(41, json.dumps(LOCK | {"clientId": "c2"}).encode())
    return (
        bytes(answer.body),
        [bytes(each.body) for each in groups],
        bytes(other.body),
        rig.node.members.has_producers("p"),
        [users.secret(name) for name in ("u", "v")],
        [bytes(client.well(each).body) for each in (3005, 3010)],
    )


@pytest.mark.parametrize("code", BODIES)
@pytest.mark.parametrize("leniency", LENIENCIES)
def test_it_does_and_answers_the_same(leniency: str, code: int) -> None:
    written = LENIENCIES[leniency](BODIES[code])
    assert outcome(code, written) == outcome(code, json.dumps(BODIES[code]))


def test_the_outcome_shows_what_the_body_says() -> None:
    """Else the comparison would prove nothing."""
    empty = '{"clientID":"c1","consumerGroup":"none"}'
    for code in (34, 41, 42):
        assert outcome(code, json.dumps(BODIES[code])) != outcome(code, empty)
    for code, other in ((3001, '{"password":"q"}'), (3002, empty), (3006, json.dumps(POLICIES).replace("Sub", "Pub"))):
        assert outcome(code, json.dumps(BODIES[code])) != outcome(code, other)
    assignment = bytes(Rig().client().ask(400, json.dumps(BODIES[400]).encode()).body)
    assert assignment != outcome(400, json.dumps(BODIES[400]))[0]  # type: ignore[index]


def test_every_request_with_such_a_body_is_here() -> None:
    sources = {code: (FOLDER / f"{each.handler.__module__.rpartition('.')[2]}.py").read_text()
               for code, each in REQUESTS.items()}  # fmt: skip
    read = {code for code, source in sources.items() if re.search(r"call\.body\(|req_041\w+ import read", source)}
    assert read == set(BODIES)


@pytest.mark.parametrize("code", BODIES)
@pytest.mark.parametrize("body", ["", "null", "[]", "{", '{"a":1', '{} {"a":1}', '{"a":word}'])
def test_what_is_no_object_is_refused(body: str, code: int) -> None:
    answer = Rig().client().ask(code, body.encode(), **FIELDS.get(code, {}))
    assert answer.code == Code.INVALID_PARAMETER
    assert (answer.remark or "").startswith("the body cannot be read: ")


def test_the_heartbeat_of_the_go_client() -> None:
    """As internal/model.go writes it: sets as lists of strings, the model in other letters."""
    rig = Rig()
    client = rig.client()
    rig.broker.create_topic("orders", 1)
    client.well(
        34,
        b'{"clientID":"10.0.0.1@7","producerDataSet":[],"consumerDataSet":[{"groupName":"g","consumeType":'
        b'"CONSUME_PASSIVELY","messageModel":"Clustering","consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET",'
        b'"subscriptionDataSet":[{"classFilterMode":false,"topic":"orders","subString":"TagA","tagsSet":["TagA"],'
        b'"codeSet":["2598919"],"subVersion":1700000000000000000,"expressionType":"TAG"}],"unitMode":false}]}',
    )
    said = json.loads(bytes(client.well(203, consumerGroup="g").body))
    assert said["messageModel"] == "CLUSTERING"
    assert said["subscriptionTable"]["orders"]["codeSet"] == [2598919]
    client.produce("orders", b"one", TAGS="TagA")
    client.produce("orders", b"two", TAGS="TagB")
    read = client.read("orders", consumerGroup="g", sysFlag=0, subscription="", subVersion=1700000000000000000)
    assert [message.body for message in read] == [b"one"]


def test_fields_of_a_header_may_be_numbers() -> None:
    rig = Rig()
    rig.broker.create_topic("orders", 1)
    client = rig.client()
    client.produce("orders", b"one")
    header = b'{code:"30",opaque:9,extFields:{"topic":"orders",\'queueId\':0},flag:0,version:"479",language:GO}'
    header = header.replace(b"language:GO", b'language:"GO"')
    size = len(header)
    client.feed((4 + size).to_bytes(4, "big") + size.to_bytes(4, "big") + header)
    rig.turns()
    (answer,) = client.answers()
    assert (answer.code, answer.opaque, answer.fields) == (0, 9, {"offset": "1"})
