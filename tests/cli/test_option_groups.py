from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from halfmoon.cli.option_groups import option_groups


@dataclass(frozen=True)
class Where:
    host: Annotated[str, typer.Option("--host")] = "here"
    port: Annotated[int, typer.Option("--port", "-p")] = 1


def test_a_group_is_its_fields_on_the_command_line_and_itself_in_the_command() -> None:
    called: list[tuple[str, Where, bool]] = []
    app = typer.Typer()

    @app.command()
    @option_groups
    def go(name: Annotated[str, typer.Argument()], *, where: Where, loud: bool = False) -> None:
        called.append((name, where, loud))

    for arguments in (["a"], ["b", "-p", "7", "--loud"], ["--host", "there", "c"]):
        assert CliRunner().invoke(app, arguments).exit_code == 0
    assert called == [("a", Where(), False), ("b", Where(port=7), True), ("c", Where("there"), False)]
    assert CliRunner().invoke(app, ["a", "--port", "x"]).exit_code == 2
