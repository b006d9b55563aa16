"""`halfmoon produce`: send records, from the command line or from stdin."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from halfmoon.cli import completing, outcomes, output, rocketmq_message, rocketmq_produce, times
from halfmoon.cli.brokers import Brokers
from halfmoon.cli.connect import admin, producer
from halfmoon.cli.errors import CliError, describe_kafka_error
from halfmoon.cli.input_files import check_files, messages_of
from halfmoon.cli.input_records import Message, lines_of, to_message, unescape
from halfmoon.cli.option_groups import option_groups
from halfmoon.cli.options import (
    DEFAULT_NAMESRV,
    NamesrvOption,
    Output,
    OutputOption,
    Protocol,
    ProtocolOption,
    key_values,
    refuse_address_of_another,
    time_ms,
)
from halfmoon.cli.rocketmq_connect import client_options

if TYPE_CHECKING:
    from kafka import KafkaProducer

MAX_UNANSWERED = 20_000
"""So many records may be on their way: bounds what a quick pipe can pile up in memory; their bytes, what files can."""
MAX_UNANSWERED_BYTES = 64 << 20
MAX_REQUEST_BYTES = 100 << 20
ANSWER_TIMEOUT_S = 120.0
LAST_ANSWERS_S = 1.0
"""After Ctrl-C, answers to what was sent are waited for so long."""


class Compression(StrEnum):
    """Kafka's codecs."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


@option_groups
def produce(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, autocompletion=completing.topics)],
    values: Annotated[
        list[str],
        typer.Argument(metavar="[VALUE]...", help="One record per value. Default: one record per line of stdin."),
    ] = [],
    file: Annotated[
        bool, typer.Option("--file", help="Each VALUE is a file: its content is one record's value. - is stdin.")
    ] = False,
    key_from_name: Annotated[bool, typer.Option("--key-from-name", help="With --file: its name is the key.")] = False,
    key: Annotated[str | None, typer.Option("-k", "--key", help="Key of all records.", show_default=False)] = None,
    headers: Annotated[
        list[str], typer.Option("-H", "--header", metavar="NAME=VALUE", help="Header of all records. Repeatable.")
    ] = [],
    partition: Annotated[
        int | None,
        typer.Option(
            "-p", "--partition", help="Partition of all records. Default: chosen by the key.", show_default=False
        ),
    ] = None,
    timestamp: Annotated[str | None, typer.Option("-t", "--timestamp", help=times.HELP, show_default=False)] = None,
    key_delimiter: Annotated[
        str | None,
        typer.Option("-K", "--key-delimiter", help="Separates key and value in each record.", show_default=False),
    ] = None,
    delimiter: Annotated[str, typer.Option("-D", "--delimiter", help="Ends a record on stdin.")] = "\\n",
    null: Annotated[bool, typer.Option("-Z", "--null", help="Send an empty key or value as null.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Read records as `consume -o json` writes them.")] = False,
    compression: Annotated[
        Compression, typer.Option("-z", "--compression", help="Codec of the batches.")
    ] = Compression.NONE,
    *,
    brokers: Brokers,
    protocol: ProtocolOption = Protocol.KAFKA,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    result: OutputOption = Output.TEXT,
) -> None:
    """Send records, and wait until all are acknowledged.

    A topic that does not exist is created, if the broker allows it. Ctrl-C says how many were acknowledged.
    """
    refuse_address_of_another(protocol, context)
    if as_json and key_delimiter is not None:
        raise typer.BadParameter("--json and --key-delimiter exclude each other: a JSON line has its own key")
    _refuse_contradictions(values, key, file=file, key_from_name=key_from_name)
    timestamp_ms = None if timestamp is None else time_ms(timestamp, "--timestamp")
    common = Message(
        value=None,
        key=None if key is None else key.encode(),
        headers=[(name, value.encode()) for name, value in key_values(headers, "--header").items()],
        timestamp_ms=timestamp_ms,
    )
    if protocol is Protocol.ROCKETMQ:
        _refuse_what_rocketmq_has_not(timestamp, compression, common)
    split = None if key_delimiter is None else unescape(key_delimiter)
    if values and not file:
        lines: Iterable[bytes] = (value.encode("utf-8", "surrogateescape") for value in values)
    else:
        lines = [] if file else lines_of(sys.stdin.buffer, unescape(delimiter))
    messages = (
        messages_of(values, common, split, null, as_json, key_from_name)
        if file
        else (to_message(number, text, common, split, null, as_json) for number, text in enumerate(lines, 1))
    )
    if protocol is Protocol.ROCKETMQ:
        at = client_options(namesrv, brokers)
        sent, partitions = rocketmq_produce.send_all(at, topic, partition, messages, result)
    else:
        settings = {
            "compression_type": None if compression is Compression.NONE else compression.value,
            "linger_ms": 5,
            # How large a record may be is the broker's to say.
            "max_request_size": MAX_REQUEST_BYTES,
        }
        with producer(brokers, **settings) as client:
            announced = _announced(brokers, client, topic, messages)
            sent, partitions = _send_all(client, topic, partition, announced, result)
    if result is Output.TEXT:
        where = f" (partition {', '.join(map(str, sorted(partitions)))})" if partitions else ""
        output.line(f"{sent} record{'s' if sent != 1 else ''} to {topic}{where}")


def _refuse_contradictions(values: list[str], key: str | None, *, file: bool, key_from_name: bool) -> None:
    if key_from_name and not file:
        raise typer.BadParameter("--key-from-name goes with --file: only files have names")
    if key_from_name and key is not None:
        raise typer.BadParameter("--key and --key-from-name exclude each other")
    if file:
        check_files(values)


def _refuse_what_rocketmq_has_not(timestamp: str | None, compression: Compression, common: Message) -> None:
    if timestamp is not None:
        raise typer.BadParameter(
            "--timestamp is not supported with --protocol rocketmq: a message has the time at which it is sent"
        )
    if compression is not Compression.NONE:
        raise typer.BadParameter(
            "--compression is not supported with --protocol rocketmq: there are no batches to compress"
        )
    for name, _ in common.headers:
        if name in rocketmq_message.OF_THE_BROKER:
            raise typer.BadParameter(
                f"--header {name} is not supported with --protocol rocketmq: every message gets its own"
            )


def _announced(brokers: Brokers, client: KafkaProducer, topic: str, messages: Iterator[Message]) -> Iterator[Message]:
    """The messages. Before the first of them it says so where that creates the topic. Raises CliError."""
    from kafka.errors import KafkaError

    first = next(messages, None)
    if first is None:
        return
    with admin(brokers) as asking:
        is_new = any(described["error_code"] for described in asking.describe_topics([topic]))
    if is_new:
        try:
            partitions = client.partitions_for(topic)  # the request that creates it
        except KafkaError as error:
            raise CliError(f"{first.label or 'record 1'}: {describe_kafka_error(error)}") from error
        output.note(f"{topic}: created, with {len(partitions)} partition{'s' if len(partitions) != 1 else ''}")
    yield first
    yield from messages


def _send_all(
    client: KafkaProducer, topic: str, partition: int | None, messages: Iterator[Message], result: Output
) -> tuple[int, set[int]]:
    """Send everything; (records acknowledged, the partitions they went to). The first failure ends it with CliError."""
    from kafka.errors import KafkaError

    unanswered: deque[tuple[str, Any, int]] = deque()
    partitions: set[int] = set()
    sent = unanswered_bytes = 0

    def settle() -> None:
        nonlocal sent, unanswered_bytes
        label, future, size = unanswered.popleft()
        unanswered_bytes -= size
        try:
            answer = future.get(timeout=ANSWER_TIMEOUT_S)
        except KafkaError as error:
            raise CliError(f"{label or f'record {sent + 1}'}: {describe_kafka_error(error)}") from error
        with outcomes.uninterrupted():
            sent += 1
            partitions.add(answer.partition)
            if result is Output.JSON:
                place = {"topic": answer.topic, "partition": answer.partition, "offset": answer.offset}
                output.write(output.json_line({**place, "timestamp": answer.timestamp}))

    def take_all() -> None:
        nonlocal unanswered_bytes
        with output.progress("records", wanted=not sys.stdin.isatty()) as progress:
            for number, message in enumerate(messages, 1):
                try:
                    future = client.send(
                        topic,
                        value=message.value,
                        key=message.key,
                        headers=message.headers,
                        partition=partition,
                        timestamp_ms=message.timestamp_ms,
                    )
                except (KafkaError, ValueError, AssertionError) as error:
                    raise CliError(f"{message.label or f'record {number}'}: {_refusal(error)}") from error
                size = len(message.value or b"")
                unanswered.append((message.label, future, size))
                unanswered_bytes += size
                while unanswered and (
                    unanswered[0][1].is_done
                    or len(unanswered) >= MAX_UNANSWERED
                    or unanswered_bytes > MAX_UNANSWERED_BYTES
                ):
                    settle()
                    progress.advance()
            client.flush()
            while unanswered:
                settle()

    try:
        take_all()
    except KeyboardInterrupt:
        client.flush(timeout=LAST_ANSWERS_S)
        with suppress(CliError):
            while unanswered and unanswered[0][1].is_done:
                settle()
        output.note(outcomes.interrupted(topic, sent, len(unanswered)))
        raise
    return sent, partitions


def _refusal(error: Exception) -> str:
    from kafka.errors import KafkaError

    return describe_kafka_error(error) if isinstance(error, KafkaError) else str(error)
