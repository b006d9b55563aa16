"""Options that several commands have together: declared once, as the fields of a dataclass.

@app.command()
@option_groups
def delay(topics: Topics, *, spark: SparkOptions) -> None: ...
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import Any


def option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer needs it, which reads options from a function's parameters only: with a parameter for each
    field of the dataclasses that `command` takes. These are made before it is called."""
    parameters: list[Parameter] = []
    groups: dict[str, tuple[Callable[..., Any], list[str]]] = {}
    for parameter in signature(command, eval_str=True).parameters.values():
        kind = parameter.annotation
        if isinstance(kind, type) and is_dataclass(kind):
            fields = signature(kind, eval_str=True).parameters
            groups[parameter.name] = kind, list(fields)
            parameters += fields.values()
        else:
            parameters.append(parameter)

    @wraps(command)
    def flat(**values: Any) -> None:
        made = {name: kind(**{field: values.pop(field) for field in fields}) for name, (kind, fields) in groups.items()}
        command(**values, **made)

    parameters = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in parameters]
    flat.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat
