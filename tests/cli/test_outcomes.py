from __future__ import annotations

import pytest

from halfmoon.cli import outcomes
from halfmoon.cli.errors import CliError
from halfmoon.cli.options import Output


def test_each_thing_has_a_line_and_the_last_failure_is_the_commands_own(capsys: pytest.CaptureFixture[str]) -> None:
    problems = {"a": None, "b": "NON_EMPTY_GROUP", "c": "GROUP_ID_NOT_FOUND"}
    rows = [outcomes.row("group", name, problem, "deleted") for name, problem in problems.items()]
    with pytest.raises(CliError, match=r"^c: GROUP_ID_NOT_FOUND$"):
        outcomes.report(rows, Output.TEXT, "group")
    said = capsys.readouterr()
    assert (said.out, said.err) == ("a: deleted\n", "halfmoon: b: NON_EMPTY_GROUP\n")
