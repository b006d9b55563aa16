"""What `halfmoon plugin new` writes: a package with one hook, a test and a README."""

from __future__ import annotations

from typing import NamedTuple


class Template(NamedTuple):
    does: str
    """What the plugin does, as it comes from here."""
    imports: str
    """Of halfmoon.plugin, beside `hookimpl`."""
    code: str
    test: str
    """The body of a test that has `plugin`, the module, and `broker`, a broker that has it."""


HOOKS = {
    "halfmoon_config": Template(
        "It has one setting, `greeting`, and says it when the broker starts.",
        "ConfigSection, Section",
        """
class Settings(Section, frozen=True, kw_only=True):
    greeting: str = "hello"


@hookimpl
def halfmoon_config():
    return ConfigSection(Settings)


@hookimpl
def halfmoon_started(ctx):
    ctx.logger.info("event=greeting text=%s", ctx.settings.greeting)
""",
        "assert plugin.halfmoon_config().settings().greeting == 'hello'",
    ),
    "halfmoon_topic_configs": Template(
        "Topics may carry the configuration `NAME.colour`.",
        "TopicConfig, TopicConfigKind",
        """
def colour(value):
    if value not in ("red", "blue"):
        raise ValueError("expected red or blue")


@hookimpl
def halfmoon_topic_configs():
    return [TopicConfig("NAME.colour", TopicConfigKind.STRING, lambda settings: "red", colour, "Its colour.", "")]
""",
        "assert [row.name for row in plugin.halfmoon_topic_configs()] == ['NAME.colour']",
    ),
    "halfmoon_group_configs": Template(
        "Groups may carry the configuration `NAME.colour`.",
        "GroupConfig, TopicConfigKind",
        """
def colour(value):
    if value not in ("red", "blue"):
        raise ValueError("expected red or blue")


@hookimpl
def halfmoon_group_configs(ctx):
    return [GroupConfig("NAME.colour", TopicConfigKind.STRING, lambda settings, group: "red", colour, "Its colour.")]
""",
        "assert [row.name for row in plugin.halfmoon_group_configs(None)] == ['NAME.colour']",
    ),
    "halfmoon_features": Template(
        "Topics whose names begin with `audit.` are not deleted.",
        "BrokerError, Fault, Feature, TopicPolicy",
        """
@hookimpl
def halfmoon_features(ctx):
    def deleting(topic):
        if topic.name.startswith("audit."):
            raise BrokerError(Fault.POLICY_VIOLATION, f"topic '{topic.name}' is kept")

    return [Feature("NAME", topics=TopicPolicy(deleting=deleting))]
""",
        "assert [feature.name for feature in plugin.halfmoon_features(None)] == ['NAME']",
    ),
    "halfmoon_commitlog": Template(
        "Batches with the header `DRAFT` are refused.",
        "BrokerError, Fault, PutInterceptor",
        """
@hookimpl
def halfmoon_commitlog(ctx):
    def refuse(put):
        raise BrokerError(Fault.POLICY_VIOLATION, f"no drafts in {put.topic}")

    return [PutInterceptor("NAME", ("DRAFT",), refuse)]
""",
        "assert [each.header_names for each in plugin.halfmoon_commitlog(None)] == [('DRAFT',)]",
    ),
    "halfmoon_dispatch": Template(
        "It counts the records of each topic, exactly once, also after kill -9.",
        "Dispatcher",
        '''
records: dict[str, int] = {}
"""Topic -> records that are durable."""


@hookimpl
def halfmoon_dispatch(ctx):
    def on_batches(batches):
        for batch in batches:
            if not batch.control:
                records[batch.topic] = records.get(batch.topic, 0) + batch.record_count

    def restore(state):
        records.clear()
        records.update(json.loads(state or b"{}"))

    return [Dispatcher("NAME", on_batches, lambda: json.dumps(records).encode(), restore)]
''',
        """producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    producer.send("orders", b"a").get(10)
    producer.close()
    until = time.monotonic() + 10
    while plugin.records != {"orders": 1}:
        assert time.monotonic() < until
        time.sleep(0.01)""",
    ),
    "halfmoon_hold": Template(
        "Readers of the topic `bulk` get hundreds of records.",
        "HoldPolicy",
        """
@hookimpl
def halfmoon_hold(ctx):
    def matches(held, partition, arrival):
        return arrival.topic != "bulk" or arrival.end_offset % 100 == 0

    return [HoldPolicy("NAME", lambda held: None, matches, lambda held: None)]
""",
        "assert len(plugin.halfmoon_hold(None)) == 1",
    ),
    "halfmoon_fetch": Template(
        "Records with the header `HIDDEN` are stored, and nobody reads them.",
        "FetchFilter",
        """
@hookimpl
def halfmoon_fetch(ctx):
    return [FetchFilter("NAME", ("HIDDEN",), lambda topic, record: False)]
""",
        "assert [each.header_names for each in plugin.halfmoon_fetch(None)] == [('HIDDEN',)]",
    ),
    "halfmoon_relays": Template(
        "Messages that wait in `NAME.waiting` are delivered, or kept where their topic is gone.",
        "Deliver, Relay, Complete",
        """
@hookimpl
def halfmoon_relays(ctx):
    def decide(message):
        return Deliver() if message.origin is not None else Complete("NAME.lost")

    return [Relay("NAME", "NAME.waiting", decide)]
""",
        "assert [relay.source for relay in plugin.halfmoon_relays(None)] == ['NAME.waiting']",
    ),
    "halfmoon_filters": Template(
        "The filter language `begins` lets records through whose values begin with the expression.",
        "FilterSyntaxError",
        """
class Begins:
    def __init__(self, expression):
        if not expression:
            raise FilterSyntaxError("expected a beginning", 0, expression)
        self._beginning = expression.encode()
        self.needle = re.compile(re.escape(self._beginning))

    def match(self, record):
        return (record.value or b"").startswith(self._beginning)


@hookimpl
def halfmoon_filters(ctx):
    return {"begins": Begins}
""",
        """check_filter(plugin.Begins, "a", matching=[Message("apple")], others=[Message("pear"), Message(None)])
    check_filter_error(plugin.Begins, "", position=0)""",
    ),
    "halfmoon_allocators": Template(
        "The strategy `NAME` gives all queues to the first member.",
        "",
        """
def first_takes_all(members, queues):
    return {member: list(queues) if member == min(members) else [] for member in members}


@hookimpl
def halfmoon_allocators(ctx):
    return {"NAME": first_takes_all}
""",
        """queues = [Queue("orders", "broker", index) for index in range(3)]
    assert allocate(plugin.first_takes_all, ["a", "b"], queues) == {"a": queues, "b": []}""",
    ),
    "halfmoon_services": Template(
        "It counts the seconds in `/metrics`.",
        "Service",
        """
@hookimpl
def halfmoon_services(ctx):
    async def run():
        while True:
            ctx.count("seconds")
            await asyncio.sleep(1)

    return [Service("NAME", run)]
""",
        "assert [service.name for service in plugin.halfmoon_services(None)] == ['NAME']",
    ),
    "halfmoon_commands": Template(
        "`halfmoon greet NAME` says hello, where a broker.yaml in the current directory has the plugin.",
        "",
        '''
def greet(name: str) -> None:
    """Say hello."""
    print(f"hello, {name}")


@hookimpl
def halfmoon_commands(ctx):
    return {"greet": greet}
''',
        "plugin.greet('Ann')",
    ),
    "halfmoon_observers": Template(
        "It counts produced records by topic in `/metrics`.",
        "Observer",
        """
@hookimpl
def halfmoon_observers(ctx):
    def on_produced(topic, partition, records, size):
        ctx.count(f"records-of-{topic}", records)

    return [Observer("NAME", on_produced=on_produced)]
""",
        "assert [observer.name for observer in plugin.halfmoon_observers(None)] == ['NAME']",
    ),
    "halfmoon_authorize": Template(
        "Nobody deletes topics whose names begin with `audit.`.",
        "",
        """
@hookimpl
def halfmoon_authorize(operation, resource):
    return False if operation == "delete" and resource.startswith("audit.") else None
""",
        """assert plugin.halfmoon_authorize("delete", "audit.logins") is False
    assert plugin.halfmoon_authorize("delete", "orders") is None""",
    ),
    "halfmoon_kafka_apis": Template(
        "The Kafka listener answers API 31000 with what it is sent.",
        "KafkaApi",
        """
@hookimpl
def halfmoon_kafka_apis(ctx):
    return [KafkaApi(31_000, "Echo", 0, 0, lambda request: bytes(request.body), own=True)]
""",
        "assert [api.key for api in plugin.halfmoon_kafka_apis(None)] == [31_000]",
    ),
    "halfmoon_topic_changed": Template(
        "It logs what becomes of topics.",
        "",
        """
@hookimpl
def halfmoon_topic_changed(ctx, topic, change):
    ctx.logger.info("event=topic_changed topic=%s change=%s", topic, change)
""",
        "assert broker.bootstrap_servers",
    ),
    "halfmoon_started": Template(
        "It writes down when the broker started.",
        "",
        """
@hookimpl
def halfmoon_started(ctx):
    (ctx.state_dir / "last-start").write_text(str(time.time()))
""",
        "assert broker.bootstrap_servers",
    ),
    "halfmoon_stopping": Template(
        "It logs that the broker stops.",
        "",
        """
@hookimpl
def halfmoon_stopping(ctx):
    ctx.logger.info("event=stopping")
""",
        "assert broker.bootstrap_servers",
    ),
}
"""Hook → what a plugin with it looks like. NAME is the plugin's."""

MODULES = ("asyncio", "json", "re", "time")
"""Of the standard library, as far as a template needs them."""
KIT = ("Message", "check_filter", "check_filter_error")
PUBLIC = ("Queue", "allocate")

PYPROJECT = """\
[build-system]
requires = ["setuptools>=61"]
build-backend = "setuptools.build_meta"

[project]
name = "{project}"
version = "0.1.0"
description = "A plugin for Halfmoon"
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["halfmoon"]

[project.optional-dependencies]
test = ["pytest>=8"]

# The plugin's name, as in broker.yaml -> the module with its hooks.
[project.entry-points.halfmoon]
{module} = "{module}"

[tool.setuptools]
packages = ["{module}"]

[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["."]
"""

README = """\
# {project}

A plugin for the message broker Halfmoon. {does}

In this directory, and in the Python environment where Halfmoon is installed:

```console
$ pip install .
$ cat broker.yaml
plugins:
  {module}: {{}}
$ halfmoon serve --config broker.yaml
```

Its hook is `{hook}`, in `{module}/__init__.py`. Test it with `pip install -e '.[test]' && pytest`.
"""


def files(project: str, module: str, hook: str) -> dict[str, str]:
    """Path → content."""
    template = HOOKS[hook]
    code = template.code.replace("NAME", module)
    needed = [name for name in MODULES if f"{name}." in code]
    head = f'"""{template.does.replace("NAME", module)}"""\n\nfrom __future__ import annotations\n'
    head += "".join(f"\nimport {name}" for name in needed) + ("\n" if needed else "")
    names = sorted(
        [*filter(None, template.imports.split(", ")), "hookimpl"], key=lambda name: (name[0].islower(), name)
    )
    head += f"\nfrom halfmoon.plugin import {', '.join(names)}\n\napi_version = 1\n"
    body = template.test.replace("NAME", module)
    kit = ["Broker", *(name for name in KIT if f"{name}(" in body)]
    test = "from __future__ import annotations\n\n"
    test += "import time\n\n" if "time." in body else ""
    test += "import kafka\n" if "kafka." in body else ""
    public = [name for name in PUBLIC if f"{name}(" in body]
    test += f"import {module} as plugin\n"
    test += f"from halfmoon.plugin import {', '.join(public)}\n" if public else ""
    test += f"from halfmoon.testing import {', '.join(kit)}\n\n\n"
    test += "def test_a_broker_takes_the_plugin():\n    with Broker(plugins=[plugin]) as broker:\n"
    test += f"        assert {hook!r} in broker.app.plugins.infos[-1].hooks\n\n\n"
    if "broker." in body:
        body = "with Broker(plugins=[plugin]) as broker:\n        " + body.replace("\n", "\n    ")
    test += f"def test_what_it_does():\n    {body}\n"
    return {
        "pyproject.toml": PYPROJECT.format(project=project, module=module),
        "README.md": README.format(
            project=project, module=module, hook=hook, does=template.does.replace("NAME", module)
        ),
        f"{module}/__init__.py": head + ("\n" if code.startswith(("\n@", "\nclass", "\ndef")) else "") + code,
        f"tests/test_{module}.py": test,
    }
