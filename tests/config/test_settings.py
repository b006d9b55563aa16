"""broker.yaml, the environment and flags → typed settings, and what is said when they are wrong."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import yaml

from halfmoon.auth.oauth import ALGORITHMS
from halfmoon.config.listener_settings import RocketmqListener
from halfmoon.config.sections import decode_section, unit_of
from halfmoon.config.sections import leaves as leaves_of
from halfmoon.config.security_settings import OauthAlgorithm
from halfmoon.config.settings import Settings, environment_names, is_setting, load_settings, setting_paths
from halfmoon.config.units import Address
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.core.storage.local import LocalStorage
from halfmoon.errors import StartError
from halfmoon.plugins import BUILT_IN

ROOT = Path(__file__).parents[2]


def _settings_of(module: str) -> type[msgspec.Struct] | None:
    config = getattr(import_module(module), "halfmoon_config", None)
    return None if config is None else config().settings


PLUGIN_SECTIONS = {name: _settings_of(module) for name, module in BUILT_IN.items()}
"""Built-in plugin → the type of its settings; None where it has none."""


def refused(
    source: object = None, env: dict[str, str] | None = None, overrides: dict[str, object] | None = None
) -> str:
    with pytest.raises(StartError) as caught:
        load_settings(source, env or {}, overrides or {})
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_defaults() -> None:
    settings = load_settings(None, {}, {})
    assert settings == Settings()
    assert settings.log.segment_bytes == 1 << 30
    assert settings.log.retention_ms == 604_800_000
    assert settings.log.flush_interval_ms == 100
    assert settings.topics.max_message_bytes == 4_194_304
    assert settings.limits.max_request_bytes == 104_857_600
    assert settings.listeners.kafka.bind == Address("127.0.0.1", 9092)
    assert settings.listeners.http is None


def test_low_disk_mark_is_two_segments_unless_said_otherwise(tmp_path: Path) -> None:
    def mark(log: dict[str, Any]) -> int:
        return LocalStorage(OsFileSystem(tmp_path), load_settings({"log": log}, {}, {})).log.low_disk_mark

    assert mark({"segment_bytes": "1MiB"}) == 2 << 20
    assert mark({"low_disk_bytes": "5MiB"}) == 5 << 20
    assert mark({"low_disk_bytes": 0}) == 0
    assert mark({}) == 128 << 20, "of the segment that would come next, which is small in a young log"


def test_file_in_human_form(tmp_path: Path) -> None:
    path = tmp_path / "broker.yaml"
    path.write_text(
        "node: {id: 7}\nlisteners:\n  kafka: {bind: 'localhost:0', advertise: 'kafka.example:9092'}\n  http: {}\n"
        "log: {flush: interval, retention: null, segment_bytes: 64MiB}\ntopics:\n",
        encoding="utf-8",
    )
    settings = load_settings(path, {}, {})
    assert settings.node.id == 7
    assert settings.listeners.kafka.bind == ("localhost", 0)
    assert str(settings.listeners.kafka.advertise) == "kafka.example:9092"
    assert settings.listeners.http is not None
    assert str(settings.listeners.http.bind) == "127.0.0.1:8080"
    assert (settings.log.flush, settings.log.retention_ms, settings.log.segment_bytes) == ("interval", None, 64 << 20)
    assert settings.topics == Settings().topics
    assert settings.plugins.base_dir == str(tmp_path)


def test_flags_over_environment_over_file_over_defaults() -> None:
    source = {"log": {"flush_interval": "1s", "flush_bytes": "1MiB", "retention": "1d"}}
    env = {"HALFMOON_LOG_FLUSH_INTERVAL": "2s", "HALFMOON_LOG_FLUSH_BYTES": "2MiB"}
    log = load_settings(source, env, {"log.flush_interval": "3s", "log.flush": None}).log
    assert (log.flush_interval_ms, log.flush_bytes, log.retention_ms, log.flush) == (3_000, 2 << 20, 86_400_000, "sync")


@pytest.mark.parametrize(
    ("variable", "text", "path", "value"),
    [
        ("HALFMOON_TOPICS_AUTO_CREATE", "false", "topics.auto_create", False),
        ("HALFMOON_TOPICS_PARTITIONS", "12", "topics.partitions", 12),
        ("HALFMOON_LOG_RETENTION", "null", "log.retention_ms", None),
        ("HALFMOON_LOG_RETENTION", "", "log.retention_ms", None),
        ("HALFMOON_LISTENERS_KAFKA_ALLOW_INSECURE", "true", "listeners.kafka.allow_insecure", True),
        ("HALFMOON_LISTENERS_HTTP_BIND", "127.0.0.1:0", "listeners.http.bind", Address("127.0.0.1", 0)),
        ("HALFMOON_LISTENERS_HTTP", "", "listeners.http", None),
    ],
)
def test_environment_text_finds_its_type(variable: str, text: str, path: str, value: object) -> None:
    found: object = load_settings({}, {variable: text}, {})
    for name in path.split("."):
        found = getattr(found, name)
    assert found == value


def test_every_setting_has_a_variable_of_its_own() -> None:
    assert len(environment_names()) == len(setting_paths())


def test_overrides_of_the_right_type_are_taken_too() -> None:
    overrides = {"node.id": 3, "topics.auto_create": False, "listeners.kafka.bind": Address("::1", 1)}
    settings = load_settings(None, {}, overrides)
    assert (settings.node.id, settings.topics.auto_create) == (3, False)
    assert str(settings.listeners.kafka.bind) == "[::1]:1"


def test_a_source_is_not_changed() -> None:
    source: dict[str, object] = {"log": {"flush": "sync"}, "plugins": {}}
    load_settings(source, {"HALFMOON_LOG_FLUSH": "interval"}, {"log.validate": "records"})
    assert source == {"log": {"flush": "sync"}, "plugins": {}}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            {"cluster": {"database": "postgres+ssl://u:secret@host/db", "store": "s3://b/"}},
            "$.cluster.database: got 'postgres+ssl://…', expected postgresql://USER@HOST/NAME",
        ),
        (
            {"cluster": {"database": "u:secret@host/db", "store": "s3://b/"}},
            "$.cluster.database: got no URL, expected postgresql://USER@HOST/NAME",
        ),
        (
            {"cluster": {"database": "postgresql://host/db", "store": "https://key:secret@host/bucket"}},
            "$.cluster.store: got 'https://…', expected s3://BUCKET/PREFIX",
        ),
        (
            {"cluster": {"database": "postgresql://host/db"}},
            "$.cluster.store: got nothing, expected s3://BUCKET/PREFIX",
        ),
        (
            {"log": {"retention": "7 dayz"}},
            "$.log.retention: got '7 dayz', expected a duration such as 100ms, 30s or 7d",
        ),
        ({"log": {"retention": 60}}, "$.log.retention: got 60, expected a duration such as 100ms, 30s or 7d"),
        ({"log": {"flush_interval": "0.5ms"}}, "$.log.flush_interval: got '0.5ms', expected a duration"),
        ({"log": {"flush_interval": "0s"}}, "at least 1ms"),
        ({"log": {"segment_bytes": "1GB"}}, "$.log.segment_bytes: got '1GB', expected a size such as 64KiB"),
        ({"log": {"segment_bytes": "1KiB"}}, "at least 64KiB"),
        ({"log": {"segment_bytes": "3GiB"}}, "at most 2GiB"),
        ({"log": {"flush": "async"}}, "$.log.flush: got 'async', expected one of sync, interval"),
        ({"log": {"flush": None}}, "$.log.flush: got null, expected one of sync, interval"),
        ({"log": 5}, "$.log: got 5, expected settings, one to a line"),
        ({"log": {"segment_byte": 1}}, "$.log.segment_byte: no such setting; did you mean segment_bytes?"),
        ({"logs": {}}, "$.logs: no such setting; did you mean log?"),
        ({"xyzzy": 1}, "$.xyzzy: no such setting; there are: cluster, groups, hold,"),
        ({"node": {"id": "zero"}}, "$.node.id: got 'zero', expected a whole number"),
        ({"node": {"data_dir": ""}}, "$.node.data_dir: got '', expected text of length >= 1"),
        ({"node": {"id": -1}}, "$.node.id: got -1, expected a whole number >= 0"),
        ({"topics": {"auto_create": "yes"}}, "$.topics.auto_create: got 'yes', expected true or false"),
        ({"topics": {"partitions": True}}, "$.topics.partitions: got true, expected a whole number"),
        ({"listeners": {"kafka": {"bind": ":9092"}}}, "$.listeners.kafka.bind: got ':9092', expected HOST:PORT"),
        ({"listeners": {"kafka": {"bind": "h:99999"}}}, "expected HOST:PORT"),
        ({"listeners": {"kafka": {"advertise": "h:0"}}}, "$.listeners.kafka.advertise: got h:0, expected an address"),
        ({"listeners": {"http": True}}, "$.listeners.http: got true, expected settings"),
        (
            {"groups": {"min_session_timeout": "2h"}},
            "$.groups.min_session_timeout: got 2h, expected at most max_session_timeout (30m)",
        ),
        (
            {"limits": {"inflight_bytes": "1MiB"}},
            "$.limits.inflight_bytes: got 1MiB, expected at least max_request_bytes (100MiB)",
        ),
        (
            {"listeners": {"rocketmq": {"queue_lock": "20s"}}},
            "$.listeners.rocketmq.queue_lock: got '20s', expected a duration such as 100ms, 30s or 7d, at least 30s",
        ),
        (
            {"listeners": {"rocketmq": {"pull_messages": 0}}},
            "rocketmq.pull_messages: got 0, expected a whole number >= 1",
        ),
        ({"listeners": {"rocketmq": {"pull_messages": 513}}}, "expected a whole number <= 512"),
        ({"listeners": {"rocketmq": {"pull_bytes": "9MiB"}}}, "$.listeners.rocketmq.pull_bytes: got '9MiB', expected"),
        ({"listeners": {"rocketmq": {"pull_bytes": 0}}}, "at least 1B"),
        ({"listeners": {"rocketmq": {"client_timeout": "0s"}}}, "at least 1s"),
        ({"listeners": {"rocketmq": {"memory_ratio": 1.5}}}, "$.listeners.rocketmq.memory_ratio: got 1.5, expected"),
        ({"plugins": ["delay"]}, "$.plugins: got ['delay'], expected plugins by name"),
    ],
)
def test_wrong_settings_name_path_value_and_expectation(source: dict[str, object], message: str) -> None:
    assert message in refused(source)


def test_wrong_environment_names_the_variable() -> None:
    assert refused(env={"HALFMOON_TOPICS_PARTITIONS": "0"}) == (
        "$.topics.partitions (from HALFMOON_TOPICS_PARTITIONS): got '0', expected a whole number >= 1"
    )
    assert "(from HALFMOON_LIMITS_INFLIGHT_BYTES): got 1B" in refused(env={"HALFMOON_LIMITS_INFLIGHT_BYTES": "1"})
    assert refused(env={"HALFMOON_LOG_RETENTIN": "1d"}) == (
        "environment: HALFMOON_LOG_RETENTIN: no such setting; did you mean HALFMOON_LOG_RETENTION?"
    )


def test_variables_of_others_are_left_alone() -> None:
    env = {"HALFMOON_SERVICE_HOST": "10.0.0.1", "HALFMOON_PORT": "tcp://10.0.0.1:9092", "PATH": "/bin"}
    assert load_settings(None, env, {}) == Settings()


def test_wrong_flags_name_the_command_line() -> None:
    assert refused(overrides={"log.flush": "x"}) == (
        "$.log.flush (from the command line): got 'x', expected one of sync, interval"
    )
    assert refused(overrides={"log.flsh": "sync"}) == "log.flsh: no such setting; did you mean log.flush?"


@pytest.mark.parametrize("bind", ["0.0.0.0:9092", "[::]:9092", "192.0.2.1:9092", "broker.example:9092"])
@pytest.mark.parametrize("listener", ["kafka", "http"])
def test_leaving_this_machine_takes_a_decision(bind: str, listener: str) -> None:
    source: dict[str, object] = {"listeners": {listener: {"bind": bind}}}
    message = refused(source)
    assert message.startswith(f"$.listeners.{listener}.bind: {bind} can be reached from other machines")
    assert "allow_insecure" in message
    allowed = {"listeners": {listener: {"bind": bind, "allow_insecure": True}}}
    assert str(getattr(load_settings(allowed, {}, {}).listeners, listener).bind) == bind


PAIR = {"cert": "a", "key": "b"}


def test_tls_with_certificates_of_clients_may_leave_this_machine() -> None:
    for listener in ("kafka", "http", "rocketmq"):
        bind = {"bind": "0.0.0.0:1", **({"namesrv": "0.0.0.0:2"} if listener == "rocketmq" else {})}
        asking = {**PAIR, "client_ca": "c", "client_auth": "require"}
        load_settings({"listeners": {listener: {**bind, "tls": asking}}}, {}, {})
        for tls in (PAIR, {**asking, "client_auth": "request"}):
            message = refused({"listeners": {listener: {**bind, "tls": tls}}})
            assert "there is no authentication;" in message
    permissive = {"bind": "0.0.0.0:1", "tls": {**asking, "mode": "permissive"}}
    assert "no encryption and no authentication" in refused({"listeners": {"rocketmq": permissive}})


def test_rocketmqs_clients_who_sign_may_come_from_elsewhere_by_tls_alone() -> None:
    bind = {"bind": "0.0.0.0:1", "namesrv": "0.0.0.0:2", "auth": True}
    settings = load_settings({"listeners": {"rocketmq": {**bind, "tls": PAIR}}}, {}, {})
    assert settings.security.authorizes(settings.listeners)
    for tls in (None, {**PAIR, "mode": "permissive"}):
        open_to_all = {**bind, "tls": tls}
        message = refused({"listeners": {"rocketmq": open_to_all}})
        assert message.startswith("$.listeners.rocketmq.tls.mode: 0.0.0.0:1 can be reached from other machines")
        load_settings({"listeners": {"rocketmq": {**open_to_all, "allow_insecure": True}}}, {}, {})
    assert "set tls and auth, or client_auth" in refused({"listeners": {"rocketmq": {**bind, "auth": False}}})
    local = load_settings({"listeners": {"rocketmq": {"auth": True}}}, {}, {})
    assert local.security.authorizes(local.listeners)


def test_visitors_of_the_admin_port_who_say_who_they_are_may_come_from_elsewhere() -> None:
    http: dict[str, object] = {"bind": "0.0.0.0:1", "tls": PAIR, "auth": ["basic"]}
    settings = load_settings({"listeners": {"http": http}}, {}, {})
    assert settings.security.authorizes(settings.listeners)
    assert "no encryption;" in refused({"listeners": {"http": http | {"tls": None}}})
    assert refused({"listeners": {"http": http | {"auth": ["mtls"]}}}).startswith("$.listeners.http.auth: got mtls")


TOKENS: dict[str, object] = {"issuer": "https://idp.example", "audience": ["kafka"], "jwks_url": "https://idp/jwks"}


def with_tokens(listeners: dict[str, object] | None = None, **oauth: object) -> dict[str, object]:
    doors = listeners or {"kafka": {"sasl": ["OAUTHBEARER"]}}
    return {"listeners": doors, "security": {"oauth": TOKENS | oauth}}


@pytest.mark.parametrize("listeners", [
    {"kafka": {"sasl": ["SCRAM-SHA-512", "OAUTHBEARER"]}},
    {"kafka": [{"bind": "127.0.0.1:1"}, {"name": "b", "bind": "127.0.0.1:2", "sasl": ["OAUTHBEARER"]}]},
    {"http": {"auth": ["bearer"]}},
])  # fmt: skip
def test_what_tokens_need(listeners: dict[str, object]) -> None:
    settings = load_settings(with_tokens(listeners), {}, {})
    assert settings.security.authorizes(settings.listeners)
    for name, missing in (("issuer", None), ("audience", []), ("jwks_url", None)):
        said = refused(with_tokens(listeners, **{name: missing}))
        assert said.startswith(f"$.security.oauth.{name}: missing")
    load_settings(with_tokens(listeners, jwks_url=None, jwks_file="jwks.json"), {}, {})
    load_settings({"security": {"oauth": {"issuer": "i"}}}, {}, {})  # nobody comes with tokens


@pytest.mark.parametrize(("oauth", "said"), [
    ({"jwks_url": "http://idp.example/jwks"}, "jwks_url: got 'http://idp.example/jwks', expected https"),
    ({"jwks_url": "http://127.0.0.1/jwks"}, "expected https"),
    ({"jwks_url": "file:///etc/jwks"}, "expected https://HOST/PATH"),
    ({"jwks_url": "https:///jwks"}, "expected https://HOST/PATH"),
    ({"jwks_url": "https://idp:port/jwks"}, "expected https://HOST/PATH"),
    ({"jwks_url": "https://idp/a b"}, "expected https://HOST/PATH"),
    ({"jwks_url": "https://user:secret@idp/jwks"}, "got a password"),
    ({"jwks_file": "jwks.json"}, "jwks_file: got a file, and jwks_url too"),
    ({"jwks_url": None, "jwks_file": "jwks.json", "ca": "ca.pem"}, "ca: expected together with jwks_url"),
    ({"algorithms": ["HS256"]}, "algorithms[0]: got 'HS256', expected one of RS256, "),
    ({"algorithms": ["RS256", "none"]}, "algorithms[1]: got 'none', expected one of RS256, "),
    ({"algorithms": []}, "algorithms: got none"),
    ({"audience": "kafka"}, "audience: got 'kafka', expected array"),
    ({"audience": [""]}, "audience[0]: got ''"),
    ({"issuer": ""}, "issuer: got ''"),
])  # fmt: skip
def test_tokens_that_anybody_could_make(oauth: dict[str, object], said: str) -> None:
    message = refused(with_tokens(**oauth))
    assert said in message
    assert "secret" not in message


def test_the_algorithms_are_those_of_the_verifier() -> None:
    assert set(get_args(OauthAlgorithm)) == ALGORITHMS


def test_tokens_need_tls_off_this_machine() -> None:
    listener: dict[str, object] = {"bind": "0.0.0.0:1", "sasl": ["OAUTHBEARER"]}
    assert "there is no encryption;" in refused(with_tokens({"kafka": listener}))
    load_settings(with_tokens({"kafka": listener | {"tls": PAIR}}), {}, {})
    load_settings(with_tokens({"kafka": listener | {"allow_insecure": True}}), {}, {})


def test_the_old_key_for_all_listeners_names_the_new_ones() -> None:
    assert refused({"allow_insecure": True}).startswith("$.allow_insecure: every listener says this for itself now")
    assert refused(env={"HALFMOON_ALLOW_INSECURE": "true"}).startswith("HALFMOON_ALLOW_INSECURE: every listener")
    load_settings({"allow_insecure": False}, {"HALFMOON_ALLOW_INSECURE": "false"}, {})


def test_a_list_of_listeners() -> None:
    first, second = {"bind": "127.0.0.1:1"}, {"name": "b", "bind": "127.0.0.1:2", "advertise": "x:3"}
    env = {"HALFMOON_LISTENERS_KAFKA_BIND": "127.0.0.1:9"}
    listeners = load_settings({"listeners": {"kafka": [first, second]}}, env, {}).listeners
    assert [(each.name, str(each.bind)) for each in listeners.of_kafka] == [
        ("kafka", "127.0.0.1:9"),
        ("b", "127.0.0.1:2"),
    ]


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ([], "$.listeners.kafka: got 0 listeners, expected 1 to 8"),
        ([{}] * 9, "$.listeners.kafka: got 9 listeners, expected 1 to 8"),
        ([{}, {}], "$.listeners.kafka[1].name: $.listeners.kafka[0] is called 'kafka', too"),
        ([{}, {"name": "b", "bnd": 1}], "$.listeners.kafka[1].bnd: no such setting; did you mean bind?"),
        ([{}, {"name": "b", "bind": "0.0.0.0:1"}], "$.listeners.kafka[1].bind: 0.0.0.0:1 can be reached"),
        ([{}, {"name": "b", "advertise": "x:0"}], "$.listeners.kafka[1].advertise: got x:0"),
        ([{}, {"name": "b", "tls": {"cert": "x"}}], "$.listeners.kafka[1].tls.key: missing"),
        ([{}, "x"], "$.listeners.kafka[1]: got 'x', expected settings"),
    ],
)
def test_what_is_wrong_in_a_list_of_listeners(listed: list[object], message: str) -> None:
    assert refused({"listeners": {"kafka": listed}}).startswith(message)


def test_the_list_has_no_name_of_its_own() -> None:
    assert "no such setting" in refused({"listeners": {"kafka_others": []}})


@pytest.mark.parametrize("bind", ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1"])
def test_loopback_needs_no_decision(bind: str) -> None:
    assert str(load_settings({"listeners": {"kafka": {"bind": bind}}}, {}, {}).listeners.kafka.bind) == bind


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("log: {flush: sync", "line 1"),
        ("log:\n  flush: sync\n  flush: interval\n", "line 3, column 3: flush is given twice"),
        ("- a\n- b\n", "expected settings, one to a line"),
        ("log: {1: 2}", "$.log: 1 is not a name"),
        ("node: !!python/object/apply:os.system [x]", "could not determine a constructor"),
    ],
)
def test_files_that_are_no_settings(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "broker.yaml"
    path.write_text(text, encoding="utf-8")
    assert message in refused(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert refused(tmp_path / "none.yaml").endswith("none.yaml: cannot be read: No such file or directory")
    (tmp_path / "latin.yaml").write_bytes(b"node: {data_dir: '\xe9'}")
    assert refused(tmp_path / "latin.yaml").endswith("latin.yaml: is not UTF-8 text")


def test_an_empty_file_means_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "broker.yaml"
    path.write_text("# nothing yet\n", encoding="utf-8")
    assert load_settings(path, {}, {}).log == Settings().log


def test_plugin_sections_are_kept_for_the_plugin_manager() -> None:
    plugins = load_settings(
        {"plugins": {"delay": {"levels": "1s"}, "./mine.py": True}, "views": {"v": {"source": "s"}}},
        {"HALFMOON_PLUGINS_DELAY_LEVELS": "2s"},
        {"plugins.delay.levels": "3s", "plugins.retry": False, "plugins../other.py": True},
    ).plugins
    assert plugins.sections == {"delay": {"levels": "1s"}, "./mine.py": True, "retry": False, "./other.py": True}
    assert plugins.environment == {"HALFMOON_PLUGINS_DELAY_LEVELS": "2s"}
    assert plugins.overrides["delay"]["levels"].value == "3s"
    assert plugins.extensions == {"views": {"v": {"source": "s"}}}


def test_the_commented_file_says_every_setting_with_its_default() -> None:
    path = ROOT / "broker.yaml"
    loaded = load_settings(path, {}, {})
    for section in (field.name for field in msgspec.structs.fields(Settings) if field.name != "plugins"):
        assert getattr(loaded, section) == getattr(Settings(), section)
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    said = set(_paths({name: value for name, value in content.items() if name != "plugins"}))
    shut = ("listeners.http.", "listeners.rocketmq.", "listeners.kafka.tls.")  # said as a whole: null
    assert said == {path for path in setting_paths() if not path.startswith(shut)}
    assert set(content["plugins"]) == set(BUILT_IN)


def test_the_commented_file_says_what_the_listener_for_rocketmq_can_say_with_its_defaults() -> None:
    text = (ROOT / "broker.yaml").read_text(encoding="utf-8")
    (block,) = re.findall(r"^  rocketmq: null .*\n((?:#    .*\n)+)", text, re.MULTILINE)
    said = yaml.safe_load(re.sub(r"(?m)^#", "", block))
    assert list(said) == list(dict.fromkeys(leaf.path[0] for leaf in leaves_of(RocketmqListener)))
    assert decode_section(RocketmqListener, said, "$.listeners.rocketmq") == RocketmqListener()


def test_the_commented_file_says_every_setting_of_the_plugins_with_its_default() -> None:
    said = yaml.safe_load((ROOT / "broker.yaml").read_text(encoding="utf-8"))["plugins"]
    for name, section in PLUGIN_SECTIONS.items():
        names = [".".join(leaf.path) for leaf in leaves_of(section)] if section is not None else []
        if not names:
            assert said[name] is True, name
            continue
        assert list(said[name]) == names, name
        assert section is not None
        assert decode_section(section, said[name], f"$.plugins.{name}") == section(), name


@pytest.mark.parametrize("page", ["delays", "retry", "transactions"])
def test_the_pages_about_plugins_say_their_settings_with_their_defaults(page: str) -> None:
    text = (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(plugins:\n.*?)```", text, re.DOTALL)
    ((name, said),) = yaml.safe_load(block)["plugins"].items()
    section = PLUGIN_SECTIONS[name]
    assert section is not None
    assert list(said) == [".".join(leaf.path) for leaf in leaves_of(section)]
    assert decode_section(section, said, f"$.plugins.{name}") == section()


def test_the_documentation_says_every_setting_with_its_default() -> None:
    text = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    before, after = text.split("## Services")[0], text.split("## Plugins")[1]
    rows = [line.split("|") for line in (before + after).splitlines()]
    table = {row[1].strip(" `"): row[2].strip(" `") for row in rows if len(row) > 3 and row[1].startswith(" `")}
    core = setting_paths()
    settings = {path: leaf for leaf in leaves_of(Settings) if (path := ".".join(leaf.path)) in core}
    for name, section in PLUGIN_SECTIONS.items():
        if section is not None:
            settings |= {".".join(("plugins", name, *leaf.path)): leaf for leaf in leaves_of(section)}
    assert set(table) == set(settings)
    for path, leaf in settings.items():
        assert _read(leaf.kind, table[path]) == leaf.default, path


PAGES_WITH_FILES = ["configuration", "metrics", "views"]


@pytest.mark.parametrize("page", PAGES_WITH_FILES)
def test_what_the_pages_show_as_broker_yaml_is_valid(page: str, tmp_path: Path) -> None:
    text = (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")
    shown = re.findall(r"<!-- test: valid -->\n```yaml\n(.*?)```", text, re.DOTALL)
    assert shown
    for number, content in enumerate(shown):
        path = tmp_path / f"{number}.yaml"
        path.write_text(content, encoding="utf-8")
        command = [sys.executable, "-m", "halfmoon", "config", "check", str(path)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), content


def _paths(tree: dict[str, object], prefix: str = "") -> list[str]:
    found: list[str] = []
    for name, value in tree.items():
        found += _paths(value, f"{prefix}{name}.") if isinstance(value, dict) else [f"{prefix}{name}"]
    return found


def _read(kind: object, text: str) -> object:
    """What the documentation writes, as a value."""
    if text == "required":
        return msgspec.NODEFAULT
    unit = unit_of(kind) or next((unit for arm in getattr(kind, "__args__", ()) if (unit := unit_of(arm))), None)
    return unit.parse(text) if unit is not None and text != "null" else yaml.safe_load(text)


def test_a_setting_is_known_without_all_others() -> None:
    paths = {".".join(leaf.path) for leaf in leaves_of(Settings)}
    assert {path for path in paths if is_setting(path)} == paths
    inner = {path.rpartition(".")[0] for path in paths} - paths
    for no_setting in (*inner, "log.fluhs", "log.flush.x", "lgo.flush", "log"):
        assert not is_setting(no_setting), no_setting
