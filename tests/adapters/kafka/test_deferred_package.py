"""A package put in place without its `__init__`: what it costs nobody, and what it does when asked."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from halfmoon.adapters.kafka.deferred_package import defer


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package `deferred_one` that counts how often it is executed, with a submodule."""
    folder = tmp_path / "deferred_one"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "import builtins\nbuiltins.executed_one += 1\nfrom deferred_one.part import inner\nouter = 2\n"
        "try:\n    from deferred_one import missing\nexcept ImportError:\n    missing_seen = True\n"
    )
    (folder / "part.py").write_text("inner = 1\n")
    (folder / "below").mkdir()
    (folder / "below" / "__init__.py").write_text("import builtins\nbuiltins.executed_one += 10\nfrom .leaf import *\n")
    (folder / "below" / "leaf.py").write_text("green = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("builtins.executed_one", 0, raising=False)
    defer("deferred_one")
    yield sys.modules["deferred_one"]
    for name in ("deferred_one", "deferred_one.part", "deferred_one.below", "deferred_one.below.leaf"):
        sys.modules.pop(name, None)


def executed() -> int:
    import builtins

    return builtins.executed_one


def test_a_submodule_is_imported_without_the_package(package) -> None:
    from deferred_one.part import inner

    assert (inner, executed()) == (1, 0)


def test_a_name_of_the_package_executes_it_once_in_place(package) -> None:
    import deferred_one.part as part
    from deferred_one import missing_seen, outer

    assert (outer, missing_seen, executed()) == (2, True, 1)
    assert sys.modules["deferred_one"] is package
    assert package.part is part
    assert package.inner == 1
    with pytest.raises(AttributeError, match="nothing"):
        _ = package.nothing
    assert executed() == 1


def test_a_package_within_a_package(package) -> None:
    defer("deferred_one.below")
    from deferred_one.below.leaf import green

    assert (green, executed()) == (3, 0)
    assert package.below.green == 3
    assert executed() == 10
    from deferred_one.below import green as again

    assert (again, executed()) == (3, 10)


def test_threads_that_ask_at_once_wait_for_each_other(package) -> None:
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(package.outer)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [2] * 8
    assert executed() == 1


def test_what_is_there_already_or_not_installed_is_left_alone() -> None:
    defer("json")
    defer("not_installed_anywhere")
    assert sys.modules["json"].loads("1") == 1
    assert "not_installed_anywhere" not in sys.modules


def test_the_broker_loads_none_of_kafka_pythons_clients_and_they_work_beside_it() -> None:
    code = (
        "import sys, halfmoon.adapters.kafka.server\n"
        "assert 'kafka.protocol.producer' in sys.modules\n"
        "assert not {'kafka.admin', 'kafka.consumer', 'kafka.net'} & set(sys.modules), 'clients are loaded'\n"
        "assert 'kafka.protocol.admin.topics' in sys.modules\n"
        "assert 'kafka.protocol.sasl' not in sys.modules, 'messages that the broker does not have are loaded'\n"
        "import kafka\n"
        "from kafka import KafkaConsumer\n"
        "from kafka.admin import KafkaAdminClient\n"
        "assert kafka.KafkaConsumer is KafkaConsumer\n"
        "assert kafka.protocol is sys.modules['kafka.protocol'] and kafka.__version__\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
