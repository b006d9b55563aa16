"""Writes tests/plugins/filter/sql92_vectors.json: what RocketMQ 5.3.3 makes of a thousand expressions.

    python tools/sql92_vectors/make.py      (needs Java 17 and Maven)

The expressions are some that people write, the corners of the grammar, and many made by chance, always the same ones.
What follows a whole expression RocketMQ does not look at, so none here has anything there.
"""

from __future__ import annotations

import json
import random
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
TARGET = HERE.parents[1] / "tests/plugins/filter/sql92_vectors.json"

RECORDS: list[dict[str, str]] = [
    {"TAGS": "logistics", "region": "HZ", "price": "5", "vip": "true"},
    {"TAGS": "logistics", "region": "SH", "price": "10", "note": "x", "vip": "false"},
    {"TAGS": "logistics", "region": "BJ", "price": "15"},
    {"TAGS": "trade", "region": "HZ", "price": "20", "note": "y", "vip": "true"},
    {"TAGS": "trade", "price": "25.5"},
    {"TAGS": "trade", "region": "GZ", "note": "it's", "vip": "false"},
    {},
    {"price": "-5", "vip": "TRUE", "region": "hz"},
    {"price": "+7", "vip": "yes", "region": "H_Z%"},
    {"price": " 5", "vip": " true", "region": " HZ"},
    {"price": "5.0", "vip": "1"},
    {"price": "1e3", "note": "NULL"},
    {"price": "NaN", "note": "5"},
    {"price": "-0.0", "note": "0"},
    {"price": "0x1p3", "note": "8"},
    {"price": "5f"},
    {"price": "5L"},
    {"price": "2147483647"},
    {"price": "2147483648"},
    {"price": "-2147483648"},
    {"price": "9223372036854775807"},
    {"price": "9223372036854775808"},
    {"price": "9007199254740993"},
    {"price": "\u0663", "region": "\u676d\u5dde"},
    {"price": "007", "note": "7"},
    {"price": "1_0", "note": "10"},
    {"price": "-Infinity", "note": "Infinity"},
    {"price": "5\n", "note": "5"},
    {"price": "--5", "region": "HZSH"},
    {"price": "x", "note": "x"},
]

WRITTEN = [
    "TAGS='logistics' AND region IN ('HZ','SH')", "price BETWEEN 10 AND 20", "price NOT BETWEEN 10 AND 20",
    "price NOT BETWEEN 10.0 AND 20.0", "note IS NULL", "note IS NOT NULL", "price > 15", "price > 15.0",
    "price >= 15 AND price <= 25", "price < 10", "NOT (price > 15)", "region <> 'HZ'", "region NOT IN ('HZ','SH')",
    "region = 'HZ' OR price = 10", "vip = TRUE", "vip = FALSE", "note = 'it''s'", "price > 15 OR note IS NULL",
    "note IS NULL OR price > 15", "vip", "price BETWEEN 10 AND 20 AND vip = TRUE",
    "region = 'HZ' AND NOT vip = FALSE", "NOT (vip = FALSE)", "region CONTAINS 'Z'", "region STARTSWITH 'H'",
    "region ENDSWITH 'H'", "region NOT CONTAINS 'Z'", "region NOT STARTSWITH 'H'", "region NOT ENDSWITH 'H'",
    "price = 25.5", "region > 'A'", "missing = 1", "TRUE = TRUE",
    # literals
    "TRUE", "FALSE", "NULL", "NOT TRUE", "NOT NULL", "'x'", "5", "-5", "+5", "5.5", "price = 5L", "price = 5l",
    "price = 0", "price = 0L", "price = 00", "price = 5.", "price = .5", "price = 5E0", "price = 5e+0", "price = 0.0",
    "price = 1e-400", "price = 1e400", "price = 2147483647", "price = 2147483648", "price = 9223372036854775807",
    "price = 9223372036854775808", "price > 2147483647", "price > 2147483648", "price >= -2147483648",
    "price >= -2147483649", "price > 9007199254740992.0", "price = 9007199254740993", "price = -0", "price > -1",
    "price < -0.5", "price = ''", "note = ''''", "region = '\u676d\u5dde'", "price = 3",
    # types
    "price = TRUE", "TRUE = price", "TRUE = vip", "FALSE = vip", "vip <> TRUE", "5 = price", "15 < price",
    "15 >= price",
    "15.0 < price", "'HZ' = region", "price = note", "price <> note", "price > note", "price <= note", "note < price",
    "missing = absent", "missing <> absent", "missing = note", "note = missing", "missing > 1", "1 > missing",
    "5 = 5", "5 = 5.0", "5.0 = 5", "5 = 5L", "5 <> 6", "5 < 6", "6 < 5.5", "'a' = 'a'", "'a' <> 'b'", "'5' = 5",
    "5 = '5'", "'x' = 5", "TRUE = FALSE", "TRUE = 1", "1 = TRUE", "TRUE = 'true'", "'true' = TRUE", "TRUE <> FALSE",
    "price = NULL", "NULL = price", "price <> NULL", "NULL IS NULL", "TRUE IS NULL", "5 IS NULL", "'x' IS NOT NULL",
    "price > NULL", "price > TRUE", "price > '5'", "TRUE > FALSE", "'5' < price", "price > (vip = TRUE)",
    "(price = 5) = TRUE", "(price = 5) = vip", "(price = 5) <> FALSE", "(price = 5) = (note = 'x')", "price = 5 = TRUE",
    "price = 5 = 5", "price > 5 > 5", "(price = 5) IS NULL", "price = 5 IS NULL", "price IS NULL IS NULL",
    "price IS NULL IS NOT NULL", "-price = 5", "-price > 5", "- - 5 = 5", "-(5) = -5", "-TRUE = 5", "-'x' = 5",
    "-NULL IS NULL", "-vip", "+price = 5", "+vip", "+TRUE", "+'x' = 'x'", "-5L = price", "-2147483648 = price",
    # logic
    "vip AND TRUE", "TRUE AND vip", "vip OR TRUE", "NOT vip", "NOT NOT vip = TRUE", "NOT vip = TRUE", "NOT price > 5",
    "NOT (NOT (vip = TRUE))", "vip = TRUE AND price > 5 OR region = 'HZ'", "vip = TRUE OR price > 5 AND region = 'HZ'",
    "(vip = TRUE OR price > 5) AND region = 'HZ'", "TRUE OR price > 5", "price > 5 OR TRUE", "FALSE AND price > 5",
    "price > 5 AND FALSE", "NULL OR TRUE", "NULL AND TRUE", "NULL AND FALSE", "NULL OR FALSE", "NOT (missing = 1)",
    "NOT (missing IS NULL)", "missing = 1 OR TRUE", "missing = 1 AND FALSE", "NOT (missing = 1 AND FALSE)",
    "price OR 5 = 5", "5 OR TRUE", "TRUE AND 'x'", "NOT 5", "NOT 'x'", "NOT (5)",
    # IN, BETWEEN, CONTAINS
    "region IN ('HZ')", "region IN ()", "region IN ('HZ',)", "region IN (1,2)", "region IN 'HZ'", "'HZ' IN ('HZ')",
    "5 IN ('5')", "region IN ('HZ','SH','BJ','GZ','hz','x')", "region NOT IN ('HZ','SH','BJ','GZ','hz','x')",
    "NOT region IN ('HZ')", "NOT (region IN ('HZ'))", "price IN ('5','10')", "missing IN ('x')", "missing NOT IN ('x')",
    "NOT (missing NOT IN ('x'))", "price BETWEEN 20 AND 10", "price BETWEEN 10 AND 10", "price BETWEEN 1.5 AND 20",
    "price BETWEEN 'a' AND 'b'", "price BETWEEN NULL AND 5", "price BETWEEN -5 AND 5", "price BETWEEN 5 AND -5",
    "price BETWEEN note AND 10", "price BETWEEN 1 AND note", "price NOT BETWEEN 20 AND 10", "5 BETWEEN 1 AND 10",
    "15 BETWEEN price AND 20", "price BETWEEN TRUE AND 5", "price BETWEEN 1 AND 'x'", "missing BETWEEN 1 AND 2",
    "NOT (price BETWEEN 1 AND 5)", "NOT price BETWEEN 1 AND 5", "'x' BETWEEN 1 AND 5", "price NOT BETWEEN NULL AND 5",
    "price NOT BETWEEN 'a' AND 'b'", "region CONTAINS ''", "region CONTAINS '%'", "region CONTAINS '_'",
    "region CONTAINS 'HZ'", "'abc' CONTAINS 'b'", "5 CONTAINS '5'", "TRUE CONTAINS 'T'", "missing CONTAINS 'x'",
    "missing NOT CONTAINS 'x'", "NOT (missing CONTAINS 'x')", "missing STARTSWITH 'x'", "missing NOT STARTSWITH 'x'",
    "missing NOT ENDSWITH 'x'", "region STARTSWITH ''", "region ENDSWITH ''", "region NOT CONTAINS ''",
    "region CONTAINS note", "region CONTAINS 5", "NOT region CONTAINS 'Z'", "price CONTAINS '5'",
    "(region = 'HZ') CONTAINS 'x'", "region IS", "region IS NOT", "region IS 5", "IS NULL", "region IS NULL = TRUE",
    # form
    "", " ", "()", "(vip = TRUE", "((vip = TRUE))", "region >", "region = ", "= 'x'", "a AND", "AND a", "a = 'unclosed",
    "vip=TRUE", "\tvip\n=\r\nTRUE\f", "/* a */ vip = /* ** */ TRUE", "vip = TRUE -- note\n", "-- note\nvip = TRUE",
    "region IN\n('HZ', -- first\n'SH')", "VIP = TRUE", "vip = true", "vip = True AND region in ('HZ')",
    "price between 10 and 20", "region is not null", "$a IS NULL", "_a IS NULL", "a1 IS NULL", "not1 IS NULL",
    "nothing IS NULL", "isnull IS NULL", "a.b IS NULL", "a-b IS NULL", "\u00e4 IS NULL", "\"vip\" = TRUE",
    "vip == TRUE", "vip != TRUE", "price > = 5", "price < > 5", "price => 5", "LIKE = 'x'", "ESCAPE IS NULL", "a ? b",
    "@", "#",
]  # fmt: skip

PROPERTIES = ["price", "price", "note", "region", "vip", "TAGS", "missing"]
TEXTS = ["'HZ'", "'SH'", "'x'", "'5'", "'true'", "'logistics'", "'it''s'", "'Z'", "'H'"]
NUMBERS = ["0", "5", "10", "15", "20", "7", "5.0", "25.5", "1e3", "2147483648", "-5", "-0.5", "8", "100L"]


def condition(dice: random.Random, depth: int) -> str:
    if depth > 0 and dice.random() < 0.6:
        kind = dice.choice(["AND", "OR", "NOT", "()", "AND", "OR"])
        if kind == "NOT":
            return f"NOT ({condition(dice, depth - 1)})"
        if kind == "()":
            return f"({condition(dice, depth - 1)})"
        return f"{condition(dice, depth - 1)} {kind} {condition(dice, depth - 1)}"
    name = dice.choice(PROPERTIES)
    no = dice.choice(["", "", "NOT "])
    kinds: list[Callable[[], str]] = [
        lambda: f"{name} {dice.choice(['=', '<>'])} {dice.choice([*TEXTS, *NUMBERS, 'TRUE', 'FALSE', 'note'])}",
        lambda: f"{name} {dice.choice(['>', '>=', '<', '<='])} {dice.choice([*NUMBERS, 'note', 'price'])}",
        lambda: f"{dice.choice([*NUMBERS, *TEXTS])} = {name}",
        lambda: f"{dice.choice(NUMBERS)} {dice.choice(['>', '<='])} {name}",
        lambda: f"{name} IS {no}NULL",
        lambda: f"{name} {no}IN ({', '.join(dice.sample(TEXTS, dice.randint(1, 6)))})",
        lambda: f"{name} {no}BETWEEN {dice.choice(NUMBERS)} AND {dice.choice(NUMBERS)}",
        lambda: f"{name} {no}{dice.choice(['CONTAINS', 'STARTSWITH', 'ENDSWITH'])} {dice.choice(TEXTS)}",
        lambda: name,
        lambda: f"-{name} = {dice.choice(NUMBERS)}",
        lambda: dice.choice(["TRUE", "FALSE", "NULL"]),
        lambda: f"({condition(dice, 0)}) = {dice.choice(['TRUE', 'FALSE', 'vip'])}",
    ]
    return dice.choice(kinds)()


def expressions() -> list[str]:
    dice = random.Random(20)
    found = dict.fromkeys(WRITTEN)
    while len(found) < len(WRITTEN) + 800:
        found[condition(dice, dice.randint(0, 3))] = None
    return list(found)


def main() -> None:
    asked = expressions()
    lines = [" ".join(["r", *(word.encode().hex() for pair in record.items() for word in pair)]) for record in RECORDS]
    lines += [f"e {expression.encode().hex()}" for expression in asked]
    with tempfile.TemporaryDirectory() as jars:
        copy: list[str | Path] = [
            "mvn",
            "-q",
            "-f",
            HERE / "pom.xml",
            "dependency:copy-dependencies",
            f"-DoutputDirectory={jars}",
        ]
        subprocess.run(copy, check=True)
        ran = subprocess.run(
            ["java", "-cp", f"{jars}/*", HERE / "Oracle.java"],
            input="\n".join(lines), capture_output=True, text=True, check=True,
        )  # fmt: skip
    results = ran.stdout.splitlines()
    assert len(results) == len(asked)
    vectors = [
        f"{json.dumps(expression)}: {json.dumps(result)}" for expression, result in zip(asked, results, strict=True)
    ]
    records = ",\n  ".join(json.dumps(record) for record in RECORDS)
    TARGET.write_text(
        f'{{"records": [\n  {records}\n],\n"expressions": {{\n  ' + ",\n  ".join(vectors) + "\n}}\n", encoding="utf-8"
    )
    print(f"{len(asked)} expressions, {results.count('-')} of them refused")


if __name__ == "__main__":
    main()
