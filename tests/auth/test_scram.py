"""SCRAM against the vectors of RFC 5802 and RFC 7677, and against scramp, as its client and as its server."""

from __future__ import annotations

from base64 import b64encode

import pytest
import scramp
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.auth import scram
from halfmoon.auth.errors import AuthenticationError
from halfmoon.auth.principals import Principal, user
from halfmoon.auth.scram import (
    LONGEST_NAME,
    SHA_256,
    SHA_512,
    Credential,
    Found,
    Login,
    Mechanism,
    ScramClient,
    ScramServer,
    make_credential,
)

SALT = b"0123456789abcdefghijklmnopqrstuv"
KEY = b"the node's secret"
PASSWORD = "pencil"
BOTH = pytest.mark.parametrize("mechanism", [SHA_256, SHA_512], ids=lambda each: each.name)
CREDENTIALS = {each: make_credential(each, PASSWORD, SALT) for each in (SHA_256, SHA_512)}


def server(mechanism: Mechanism, known: str = "alice", **more) -> ScramServer:
    found = Found(CREDENTIALS[mechanism], user("alice"), **more)
    return ScramServer(mechanism, lambda name, is_token: found if name == known else None, "server-nonce", KEY)


def log_in(client: ScramClient, served: ScramServer) -> Login | None:
    client.verify(served.final(client.final(served.first(client.first()))))
    return served.login


# The RFCs' own exchanges: mechanism, client nonce, server nonce, salt, proof, signature.
RFC_5802 = (
    Mechanism("SCRAM-SHA-1", 0, "sha1", 20),
    "fyko+d2lbbFgONRv9qkxdawL",
    "3rfcNHYJY1ZVvWVs7j",
    "QSXCR+Q6sek8bf92",
    "v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
    "rmF9pqV8S7suAoZWja4dJRkFsKQ=",
)
RFC_7677 = (
    SHA_256,
    "rOprNGfwEbeRWgbNEkqO",
    "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
    "W22ZaJ0SNY7soEsUEjb6gQ==",
    "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
)


@pytest.mark.parametrize("vector", [RFC_5802, RFC_7677], ids=["RFC 5802", "RFC 7677"])
def test_the_exchange_of_the_rfc(vector):
    mechanism, client_nonce, server_nonce, salt, proof, signature = vector
    credential = make_credential(mechanism, "pencil", scram.b64decode(salt))
    served = ScramServer(mechanism, lambda name, is_token: Found(credential, user(name)), server_nonce, KEY)
    client = ScramClient(mechanism, "user", "pencil", client_nonce)

    assert client.first() == f"n,,n=user,r={client_nonce}".encode()
    challenge = served.first(client.first())
    assert challenge == f"r={client_nonce}{server_nonce},s={salt},i=4096".encode()
    final = client.final(challenge)
    assert final == f"c=biws,r={client_nonce}{server_nonce},p={proof}".encode()
    end = served.final(final)
    assert end == f"v={signature}".encode()
    client.verify(end)
    assert served.login == Login(user("user"))


@BOTH
@pytest.mark.parametrize("name", ["alice", "a,b", "x=y", "=2C", ",=,="])
def test_scramp_logs_in_here(mechanism, name):
    theirs = scramp.ScramClient([mechanism.name], name, PASSWORD)
    served = server(mechanism, known=name)

    theirs.set_server_first(served.first(theirs.get_client_first().encode()).decode())
    theirs.set_server_final(served.final(theirs.get_client_final().encode()).decode())

    assert served.login == Login(user("alice"))


@BOTH
def test_we_log_in_at_scramp(mechanism):
    theirs = scramp.ScramMechanism(mechanism.name)
    auth = theirs.make_auth_info(PASSWORD, iteration_count=8192, salt=SALT)
    served = theirs.make_server(lambda name: auth)
    client = ScramClient(mechanism, "alice", PASSWORD, "client-nonce")

    served.set_client_first(client.first().decode())
    served.set_client_final(client.final(served.get_server_first().encode()).decode())

    client.verify(served.get_server_final().encode())


@BOTH
def test_credentials_are_scramps(mechanism):
    salt, stored_key, server_key, iterations = scramp.ScramMechanism(mechanism.name).make_auth_info(
        PASSWORD, iteration_count=4096, salt=SALT
    )

    assert CREDENTIALS[mechanism] == Credential(salt, stored_key, server_key, iterations)


def test_a_password_is_its_utf8_bytes_as_in_kafka():
    """SASLprep would make the same of both: a soft hyphen is mapped to nothing (Kafka: ScramFormatter.normalize)."""
    assert make_credential(SHA_256, "a\u00adb", SALT) != make_credential(SHA_256, "ab", SALT)


@BOTH
@pytest.mark.parametrize("name", ["alice", "a,b", "x=y", "müller", "日本", "O=x,CN=y"])
def test_our_client_logs_in_here(mechanism, name):
    served = server(mechanism, known=name)

    assert log_in(ScramClient(mechanism, name, PASSWORD, "cn"), served) == Login(user("alice"))


@BOTH
@pytest.mark.parametrize("case", ["wrong password", "unknown user", "disabled"])
def test_who_may_not_log_in_fails_at_the_last_step(mechanism, case):
    served = server(mechanism, usable=case != "disabled")
    name = "bob" if case == "unknown user" else "alice"
    client = ScramClient(mechanism, name, "wrong" if case == "wrong password" else PASSWORD, "cn")

    final = client.final(served.first(client.first()))

    with pytest.raises(AuthenticationError, match=r"another password|is unknown|is disabled"):
        served.final(final)
    assert served.login is None


def test_an_unknown_user_is_challenged_as_a_known_one_always_in_the_same_way():
    def challenge(name: str, key: bytes = KEY) -> bytes:
        served = ScramServer(SHA_256, server(SHA_256)._find, "server-nonce", key)
        return served.first(f"n,,n={name},r=cn".encode())

    assert challenge("bob") == challenge("bob")
    assert challenge("bob") != challenge("carol")
    assert challenge("bob") != challenge("bob", b"of another node")
    assert len(challenge("bob")) == len(challenge("alice"))
    assert challenge("bob").endswith(b",i=4096")


def test_a_token_is_found_as_one():
    asked = []
    found = Found(CREDENTIALS[SHA_256], Principal("User", "owner"), expires_ms=77)

    def find(name, is_token):
        asked.append((name, is_token))
        return found

    served = ScramServer(SHA_256, find, "sn", KEY)
    client = ScramClient(SHA_256, "token-id", PASSWORD, "cn", {"tokenauth": "true"})

    assert client.first() == b"n,,n=token-id,r=cn,tokenauth=true"
    assert log_in(client, served) == Login(user("owner"), "token-id", 77)
    assert asked == [("token-id", True)]


@pytest.mark.parametrize(
    ("extensions", "is_token"),
    [
        ("", False),
        (",tokenauth=TRUE", True),
        (",tokenauth=false", False),
        (",tokenauth=1", False),
        (",x=y,tokenauth=true", True),
        (",x=tokenauth=true", False),
    ],
)
def test_extensions(extensions, is_token):
    seen = []
    served = ScramServer(SHA_256, lambda name, token: seen.append(token), "sn", KEY)

    served.first(f"n,,n=alice,r=cn{extensions}".encode())

    assert seen == [is_token]


def test_a_client_that_could_bind_channels_and_believes_that_we_cannot_is_let_in():
    served = server(SHA_256)
    client = ScramClient(SHA_256, "alice", PASSWORD, "cn")
    challenge = served.first(b"y" + client.first()[1:])
    final = client.final(challenge)
    binding = b64encode(b"y,,")
    proven = f"{client._bare},{challenge.decode()},c={binding.decode()},r=cnserver-nonce".encode()
    salted = scram.salted_password(SHA_256, PASSWORD, SALT, 4096)
    client_key = scram.hmac.digest(salted, b"Client Key", "sha256")
    proof = scram._xor(client_key, scram.hmac.digest(CREDENTIALS[SHA_256].stored_key, proven, "sha256"))

    assert served.final(b"c=" + binding + b",r=cnserver-nonce,p=" + b64encode(proof)).startswith(b"v=")
    again = server(SHA_256)
    again.first(b"y" + client.first()[1:])
    with pytest.raises(AuthenticationError, match="channel binding"):  # which says that somebody changed the y
        again.final(final)


def test_a_client_that_sends_its_nonce_twice_is_let_in():
    """librdkafka before 2.6.1."""
    served = server(SHA_256)
    challenge = served.first(b"n,,n=alice,r=cn").decode()
    signed = "c=biws,r=cncnserver-nonce"
    salted = scram.salted_password(SHA_256, PASSWORD, SALT, 4096)
    client_key = scram.hmac.digest(salted, b"Client Key", "sha256")
    proven = f"n=alice,r=cn,{challenge},{signed}".encode()
    proof = scram._xor(client_key, scram.hmac.digest(CREDENTIALS[SHA_256].stored_key, proven, "sha256"))

    assert served.final(f"{signed},p={b64encode(proof).decode()}".encode()).startswith(b"v=")
    assert served.login is not None


@pytest.mark.parametrize("authzid", ["", "a=alice"])
def test_an_authorization_id_that_is_the_name(authzid):
    assert server(SHA_256).first(f"n,{authzid},n=alice,r=cn".encode()).startswith(b"r=cnserver-nonce,")


def test_an_authorization_id_is_compared_as_a_name():
    assert server(SHA_256).first(b"n,a=x=2Cy,n=x=2Cy,r=cn").startswith(b"r=cn")


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n",
        b"n,,",
        b"n,,n=alice",
        b"n,,n=,r=cn",
        b"n,,n=alice,r=",
        b"n,,r=cn,n=alice",
        b"x,,n=alice,r=cn",
        b"p=tls-unique,,n=alice,r=cn",
        b"n,a=bob,n=alice,r=cn",
        b"n,b=alice,n=alice,r=cn",
        b"n,a=,n=alice,r=cn",
        b"n,,m=must,n=alice,r=cn",
        b"n,,n=al=ice,r=cn",
        b"n,,n=al=2cice,r=cn",
        b"n,,n=alice,r=c n",
        b"n,,n=alice,r=c\xc3\xbcn",
        b"n,,n=alice,r=cn,",
        b"n,,n=alice,r=cn,tokenauth",
        b"n,,n=alice,r=cn,tokenauth=",
        b"n,,n=alice,r=cn,1=2",
        b"n,,n=ali\0ce,r=cn",
        b"n,,n=ali\xffce,r=cn",
        b"n,,n=" + b"a" * (LONGEST_NAME + 1) + b",r=cn",
        b"n,,n=alice,r=" + b"n" * 1025,
        b"n,,n=alice,r=cn,x=" + b"y" * 65536,
    ],
)
def test_malformed_first_messages(first):
    with pytest.raises(AuthenticationError):
        server(SHA_256).first(first)


def test_the_longest_name_and_nonce():
    assert server(SHA_256).first(b"n,,n=" + b"a" * LONGEST_NAME + b",r=" + b"n" * 1024)


def good_final() -> bytes:
    client = ScramClient(SHA_256, "alice", PASSWORD, "cn")
    return client.final(server(SHA_256).first(client.first()))


@pytest.mark.parametrize(
    "change",
    [
        lambda final: b"",
        lambda final: final.replace(b"c=biws", b"c=eSws"),  # y,,
        lambda final: final.replace(b"c=biws", b"c="),
        lambda final: final.replace(b"c=biws", b"c=!"),
        lambda final: final.replace(b"r=cnserver-nonce", b"r=cnserver-nonc"),
        lambda final: final.replace(b"r=cnserver-nonce", b"r=xcnserver-nonce"),
        lambda final: final.replace(b"r=cnserver-nonce", b"r=cncncnserver-nonce"),
        lambda final: final.replace(b"r=cnserver-nonce", b"r=cncn"),
        lambda final: final.replace(b",p=", b",x=y,p="),  # an extension, which the proof does not cover
        lambda final: final.rpartition(b",")[0],
        lambda final: final.rpartition(b",")[0] + b",p=" + b64encode(bytes(31)),
        lambda final: final.rpartition(b",")[0] + b",p=" + b64encode(bytes(32)),
        lambda final: final.rpartition(b",")[0] + b",p=" + b64encode(bytes(33)),
        lambda final: final + b",x=y",
        lambda final: final + b"\0",
        lambda final: b"n,,n=alice,r=cn",
    ],
)
def test_wrong_final_messages(change):
    served = server(SHA_256)
    served.first(b"n,,n=alice,r=cn")

    with pytest.raises(AuthenticationError):
        served.final(change(good_final()))
    assert served.login is None


def test_a_final_message_counts_once_and_not_before_the_first():
    served = server(SHA_256)
    with pytest.raises(AuthenticationError, match="before the first"):
        served.final(good_final())
    served.first(b"n,,n=alice,r=cn")
    with pytest.raises(AuthenticationError):
        served.final(good_final() + b"x")
    with pytest.raises(AuthenticationError, match="before the first"):
        served.final(good_final())


def test_a_message_of_an_extension_that_the_proof_covers():
    """As RFC 5802 has it: what is signed is what was sent. (Kafka signs what it understood of it.)"""
    client = ScramClient(SHA_256, "alice", PASSWORD, "cn", {"b": "2", "a": "1"})

    assert log_in(client, server(SHA_256)) == Login(user("alice"))


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"r=cnsn",
        b"r=sn,s=c2FsdA==,i=4096",  # not our nonce
        b"r=cn,s=c2FsdA==,i=4096",  # nothing of the server's
        b"r=cnsn,s=c2FsdA==,i=4095",
        b"r=cnsn,s=c2FsdA==,i=16385",
        b"r=cnsn,s=c2FsdA==,i=99999999999999999999",
        b"r=cnsn,s=c2FsdA==,i=-4096",
        b"r=cnsn,s=c2FsdA==,i=x",
        b"r=cnsn,s=!,i=4096",
        b"m=x,r=cnsn,s=c2FsdA==,i=4096",
    ],
)
def test_our_client_refuses_a_challenge(challenge):
    with pytest.raises(AuthenticationError):
        ScramClient(SHA_256, "alice", PASSWORD, "cn").final(challenge)


def test_our_client_refuses_a_server_that_does_not_know_the_password():
    served = server(SHA_256)
    client = ScramClient(SHA_256, "alice", PASSWORD, "cn")
    end = served.final(client.final(served.first(client.first())))

    with pytest.raises(AuthenticationError, match="other-error"):
        client.verify(b"e=other-error")
    with pytest.raises(AuthenticationError, match="does not know"):
        client.verify(b"v=" + b64encode(bytes(32)))
    with pytest.raises(AuthenticationError, match="does not know"):
        ScramClient(SHA_256, "alice", PASSWORD, "cn").verify(b"v=AA==")  # before it has a proof of its own
    client.verify(end)


letters = st.sampled_from(list(b"nyarcspvem=,.!2CD3bk+/\x00\n\x7f\xc3\xff"))
messages = st.one_of(
    st.binary(max_size=60),
    st.lists(letters, max_size=60).map(bytes),
    st.tuples(st.sampled_from([b"n,,n=alice,r=cn", b"n,a=alice,n=alice,r=cn", b"y,,n=a"]), st.binary(max_size=20)).map(
        b"".join
    ),
)


@given(messages, messages)
def test_whatever_is_sent_is_refused_as_an_authentication_error_or_not_at_all(first, final):
    served = server(SHA_256)
    for step, message in ((served.first, first), (served.final, final)):
        try:
            step(message)
        except AuthenticationError:
            pass
    assert served.login is None


@given(messages, messages)
def test_so_does_the_client(challenge, end):
    client = ScramClient(SHA_256, "alice", PASSWORD, "cn")
    for step, message in ((client.final, challenge), (client.verify, end)):
        with pytest.raises(AuthenticationError):
            step(message)


@given(st.integers(0, 200), st.integers(0, 255))
def test_a_changed_byte_of_the_final_message_is_refused(at, value):
    final = bytearray(good_final())
    at %= len(final) - 2  # the last letter of base64 has bits that say nothing
    if final[at] == value:
        value ^= 1
    final[at] = value
    served = server(SHA_256)
    served.first(b"n,,n=alice,r=cn")

    with pytest.raises(AuthenticationError):
        served.final(bytes(final))


@given(st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), min_size=1, max_size=60))
def test_names_come_back(name):
    assert scram.decode_name(scram.encode_name(name)) == name
    assert "," not in scram.encode_name(name)
