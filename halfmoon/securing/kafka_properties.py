"""Which properties of security Kafka's clients know: Java's (SslConfigs, SaslConfigs, SecurityConfig of 4.3.1), and
librdkafka's (CONFIGURATION.md). A name that none of them knows is a typing error."""

from __future__ import annotations

PREFIXES = ("security.", "ssl.", "sasl.")

_KERBEROS = (
    "kinit.cmd min.time.before.relogin service.name ticket.renew.jitter ticket.renew.window.factor keytab principal"
)
_LOGIN = (
    "callback.handler.class class connect.timeout.ms read.timeout.ms refresh.buffer.seconds "
    "refresh.min.period.seconds refresh.window.factor refresh.window.jitter retry.backoff.max.ms retry.backoff.ms"
)
_OAUTH = (
    "assertion.algorithm assertion.claim.aud assertion.claim.exp.seconds assertion.claim.iss "
    "assertion.claim.jti.include assertion.claim.nbf.seconds assertion.claim.sub assertion.file "
    "assertion.jwt.template.file "
    "assertion.private.key.file assertion.private.key.passphrase assertion.private.key.pem assertion.template.file "
    "client.credentials.client.id client.credentials.client.secret client.id client.secret clock.skew.seconds config "
    "expected.audience expected.issuer extensions grant.type header.urlencode jwks.endpoint.refresh.ms "
    "jwks.endpoint.retry.backoff.max.ms jwks.endpoint.retry.backoff.ms jwks.endpoint.url jwt.retriever.class "
    "jwt.validator.class metadata.authentication.type method scope scope.claim.name sub.claim.name token.endpoint.url"
)
_SSL = (
    "ca.certificate.stores ca.location ca.pem certificate.location certificate.pem cipher.suites crl.location "
    "curves.list enabled.protocols endpoint.identification.algorithm engine.factory.class engine.id engine.location "
    "key.location key.password key.pem keymanager.algorithm keystore.certificate.chain keystore.key keystore.location "
    "keystore.password keystore.type protocol provider providers secure.random.implementation sigalgs.list "
    "trustmanager.algorithm truststore.certificates truststore.location truststore.password truststore.type"
)

KAFKAS = frozenset((
    "security.protocol", "security.providers",
    "sasl.mechanism", "sasl.mechanisms", "sasl.jaas.config", "sasl.username", "sasl.password",
    "sasl.client.callback.handler.class",
    *(f"sasl.kerberos.{name}" for name in _KERBEROS.split()),
    *(f"sasl.login.{name}" for name in _LOGIN.split()),
    *(f"sasl.oauthbearer.{name}" for name in _OAUTH.split()),
    *(f"ssl.{name}" for name in _SSL.split()),
))  # fmt: skip
