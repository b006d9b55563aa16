"""The table of APIs says what its modules are, and imports them when they are needed."""

from __future__ import annotations

import re
import subprocess
import sys
from inspect import isgeneratorfunction
from pathlib import Path

import pytest

from halfmoon.adapters.kafka import api as package
from halfmoon.adapters.kafka.api import registered
from halfmoon.adapters.kafka.registry import Api, Handler, OnDemand

MODULES = {path.stem for path in Path(str(package.__file__)).parent.glob("api_*.py")}
EACH = pytest.mark.parametrize("api", [pytest.param(each, id=each.name) for each in registered().values()])


def handler_of(api: Api) -> Handler:
    return api.handler.load() if isinstance(api.handler, OnDemand) else api.handler


def module_of(api: Api) -> str:
    module = api.handler.module if isinstance(api.handler, OnDemand) else api.handler.__module__
    return module.rpartition(".")[2]


def test_every_module_of_the_folder_is_in_the_table() -> None:
    assert sorted(map(module_of, registered().values())) == sorted(MODULES)


@EACH
def test_a_module_is_named_after_key_and_name(api: Api) -> None:
    key, words = re.fullmatch(r"api_(\d+)_(\w+)", module_of(api)).groups()  # type: ignore[union-attr]
    assert int(key) == api.key
    assert words.replace("_", "") == api.name.removeprefix("Halfmoon").lower()


@pytest.mark.pure  # compiled functions do not say whether they are generators
@EACH
def test_what_is_sliced_is_a_generator(api: Api) -> None:
    assert isgeneratorfunction(handler_of(api)) == api.sliced


def test_only_what_every_client_calls_is_imported_at_first() -> None:
    program = (
        "import sys\n"
        "import halfmoon.server.app\n"
        "from halfmoon.adapters.kafka.api import registered\n"
        "registered()\n"
        "at_first = {name.rpartition('.')[2] for name in sys.modules if '.api.api_' in name}\n"
        "assert at_first == {'api_00_produce', 'api_01_fetch', 'api_03_metadata', 'api_18_api_versions'}, at_first\n"
        "handler = registered()[12].handler\n"
        "assert not handler.is_loaded\n"
        "handler.load()\n"
        "assert handler.is_loaded and 'halfmoon.adapters.kafka.api.api_12_heartbeat' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)
