"""`$.listeners`: where clients connect, and what each protocol's door lets through."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from halfmoon.config.sections import Section, SettingError
from halfmoon.config.units import DURATION, SIZE, Address, Duration, HostPort, PositiveDuration

SaslMechanism = Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER"]
ListenerName = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_.-]{1,100}$")]
FilePath = Annotated[str, Meta(min_length=1)]


class TlsSettings(Section, frozen=True, kw_only=True):
    """TLS of a listener: 1.2 and newer. The files are PEM, and read again when they change."""

    cert: FilePath
    """The certificate, and behind it those that lead to an authority."""
    key: FilePath
    """Its private key, which nobody but the broker's user may read."""
    client_ca: FilePath | None = None
    """Authorities by which clients' certificates are verified."""
    client_auth: Literal["none", "request", "require"] = "none"
    """Whether clients are asked for a certificate, and let in without one (Kafka: ssl.client.auth)."""

    principal_rules: Annotated[str, Meta(min_length=1)] = "DEFAULT"
    """What makes a user of the subject of a client's certificate (Kafka: ssl.principal.mapping.rules)."""

    def __post_init__(self) -> None:
        if (self.client_auth == "none") != (self.client_ca is None):
            raise SettingError("client_ca", "expected together with client_auth: request or require, and only then")


class KafkaListener(Section, frozen=True, kw_only=True):
    """Where Kafka clients connect; `advertise` None answers with the address the client reached us at."""

    name: ListenerName = "kafka"
    bind: HostPort = Address("127.0.0.1", 9092)
    advertise: HostPort | None = None
    tls: TlsSettings | None = None
    sasl: list[SaslMechanism] | None = None
    """By which clients have to authenticate; None: they have not to."""
    reauthenticate_ms: PositiveDuration | None = None
    """After so long a client has to authenticate again (Kafka: connections.max.reauth.ms); None: never."""
    allow_insecure: bool = False
    """Other machines may reach this listener, though it has not both encryption and authentication."""

    def __post_init__(self) -> None:
        if self.sasl is not None and not self.sasl:
            raise SettingError("sasl", "got no mechanism, expected some, or null")
        if self.reauthenticate_ms is not None and self.sasl is None:
            raise SettingError("reauthenticate", "expected together with sasl")


RocketmqName = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_@-]{1,100}$")]


class RocketmqTls(TlsSettings, frozen=True, kw_only=True):
    """`permissive` takes clients without TLS, too, on the same ports (RocketMQ: tls.server.mode)."""

    mode: Literal["enforcing", "permissive"] = "enforcing"


class RocketmqListener(Section, frozen=True, kw_only=True):
    """Where RocketMQ clients connect: `namesrv` is what they are configured with (namesrvAddr), `bind` what they are
    sent to. `advertise` None sends them to the address they reached us at."""

    bind: HostPort = Address("127.0.0.1", 10911)
    namesrv: HostPort = Address("127.0.0.1", 9876)
    advertise: HostPort | None = None
    tls: RocketmqTls | None = None
    auth: bool = False
    """Every request must be signed by a user (access key and secret key)."""
    allow_insecure: bool = False
    broker_name: RocketmqName = "halfmoon"
    cluster: RocketmqName = "DefaultCluster"
    max_delay_ms: Duration = 3 * 86_400_000
    """Longest delay by time that RocketMQ clients may ask for (RocketMQ: timerMaxDelaySec)."""
    pull_messages: Annotated[int, Meta(ge=1, le=512)] = 32
    """Most messages of one answer to a pull (RocketMQ: maxTransferCountOnMessageInMemory, …"""
    pull_bytes: Annotated[int, Meta(ge=1, le=8 << 20, extra={"unit": SIZE})] = 256 << 10
    """… and maxTransferBytesOnMessageInMemory); one message at least, however large. Clients take 16 MiB."""
    queue_lock_ms: Annotated[int, Meta(ge=30_000, le=86_400_000, extra={"unit": DURATION})] = 60_000
    """How long a member keeps a queue that it has locked, if it does not ask again (RocketMQ:
    rocketmq.broker.rebalance.lockMaxLiveTime). Clients trust a lock for 30 s: a shorter one has two owners."""
    client_timeout_ms: Annotated[int, Meta(ge=1_000, le=86_400_000, extra={"unit": DURATION})] = 120_000
    """A client without a heartbeat for so long is dropped (RocketMQ: ClientManager's channelExpiredTimeout)."""
    memory_ratio: Annotated[float, Meta(ge=0, le=1)] = 0.4
    """A group without progress begins at a queue's first message if that lies within so much of the machine's memory
    of the log's end (RocketMQ: accessMessageInMemoryMaxRatio)."""


class HttpListener(Section, frozen=True, kw_only=True):
    """Where /healthz and /metrics are served."""

    bind: HostPort = Address("127.0.0.1", 8080)
    tls: TlsSettings | None = None
    auth: list[Literal["basic", "bearer", "mtls"]] = field(default_factory=list)
    """By what visitors may say who they are: a user's password, an access token, or a client's certificate. Who
    does not is told only whether the broker works."""
    allow_insecure: bool = False

    def __post_init__(self) -> None:
        if "mtls" in self.auth and (self.tls is None or self.tls.client_auth == "none"):
            raise SettingError("auth", "got mtls, expected tls with client_auth: request or require beside it")


class ListenerSettings(Section, frozen=True, kw_only=True):
    """The doors. A door that is None is shut."""

    kafka: KafkaListener = KafkaListener()
    kafka_others: tuple[KafkaListener, ...] = ()
    """The second and further ones, where `kafka` is a list in broker.yaml."""
    rocketmq: RocketmqListener | None = None
    http: HttpListener | None = None

    @property
    def of_kafka(self) -> tuple[KafkaListener, ...]:
        return (self.kafka, *self.kafka_others)
