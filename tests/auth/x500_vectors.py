"""Names as Java writes them: `python -m tests.auth.x500_vectors` asks Java and writes x500_names.tsv."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.interop.java_programs import source

STORED = Path(__file__).with_name("x500_names.tsv")
HEAD = "# DER of a name, and what Java's X500Principal.getName() makes of it, in UTF-8; both in hex.\n"

UTF8, NUMERIC, PRINTABLE, T61, IA5, VISIBLE, GENERAL, UNIVERSAL, BMP = 12, 18, 19, 20, 22, 26, 27, 28, 30
CN, C, L, ST, STREET, O, OU = (f"2.5.4.{number}" for number in (3, 6, 7, 8, 9, 10, 11))  # noqa: E741
UID, DC = "0.9.2342.19200300.100.1.1", "0.9.2342.19200300.100.1.25"
EMAIL, SERIAL, TITLE, OWN, FAR = "1.2.840.113549.1.9.1", "2.5.4.5", "2.5.4.12", "1.3.6.1.4.1.99999.1", "2.999.3"

Attribute = tuple[str, int, bytes]
NAMES: list[list[list[Attribute]]] = [
    [],
    [[]],
    [[(CN, UTF8, b"alice")]],
    [[(C, PRINTABLE, b"DE")], [(O, UTF8, b"Example")], [(OU, UTF8, b"ServiceUsers")], [(CN, UTF8, b"alice")]],
    [[(DC, IA5, b"com")], [(DC, IA5, b"example")], [(UID, UTF8, b"alice")]],
    [[(L, UTF8, b"Fulton")], [(ST, UTF8, b"MD")], [(STREET, UTF8, b"Main St. 1")], [(CN, PRINTABLE, b"Duke")]],
    [[(CN, UTF8, b"alice"), (OU, UTF8, b"x")]],
    [[(OU, UTF8, b"x"), (CN, UTF8, b"alice")], [(EMAIL, IA5, b"a@example.com"), (CN, UTF8, b"b")]],
    [[(EMAIL, IA5, b"alice@example.com")], [(CN, UTF8, b"alice")]],
    [[(SERIAL, PRINTABLE, b"4711")], [(TITLE, UTF8, b"Dr.")], [(OWN, UTF8, b"x" * 200)], [(FAR, UTF8, b"")]],
    [[(CN, UTF8, b"admin,O=Example")]],
    [[(CN, UTF8, b'a,b+c"d\\e<f>g;h=i#j')]],
    [[(CN, UTF8, b"#1f")]],
    [[(CN, UTF8, b" alice ")]],
    [[(CN, UTF8, b"   ")]],
    [[(CN, UTF8, b" ")]],
    [[(CN, UTF8, b"")]],
    [[(CN, UTF8, b"a  b")]],
    [[(CN, UTF8, b"\r\na\tb\r")]],
    [[(CN, UTF8, b"admin\0evil")]],
    [[(CN, UTF8, b"\x7f\x01")]],
    [[(CN, UTF8, "Jürgen Groß".encode())]],
    [[(CN, UTF8, "日本 😀".encode())]],
    [[(CN, UTF8, "a\u2028b\u00a0".encode())]],
    [[(CN, UTF8, b"a\xff\xc3b\xe2\x82\xf0\x9f\x98\xed\xa0\x80")]],
    [[(CN, T61, "Jürgen".encode("latin-1"))]],
    [[(CN, T61, b"alice")]],
    [[(CN, BMP, "alice".encode("utf-16-be"))]],
    [[(CN, UNIVERSAL, "alice".encode("utf-32-be"))]],
    [[(CN, GENERAL, b"alice")], [(CN, NUMERIC, b"4711")], [(CN, VISIBLE, b"alice")]],
    [[(CN, 2, b"\x01")], [(CN, 4, b"abc")], [(CN, 48, b"\x0c\x01a")]],
    [[(CN, UTF8, b"x" * 300)]],
]


def element(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + content


def oid(dotted: str) -> bytes:
    first, second, *rest = map(int, dotted.split("."))
    encoded = b""
    for number in (40 * first + second, *rest):
        groups = [number & 0x7F]
        while number := number >> 7:
            groups.insert(0, 0x80 | number & 0x7F)
        encoded += bytes(groups)
    return element(6, encoded)


def name(rdns: list[list[Attribute]]) -> bytes:
    return element(
        48,
        b"".join(
            element(49, b"".join(element(48, oid(kind) + element(tag, value)) for kind, tag, value in rdn))
            for rdn in rdns
        ),
    )


def table() -> str:
    names = [name(each) for each in NAMES]
    said = subprocess.run(
        ["java", source("jdk", "SubjectNames.java")], input="".join(f"{each.hex()}\n" for each in names),
        capture_output=True, check=True, text=True,
    )  # fmt: skip
    lines = said.stdout.split("\n")  # that of an empty name is empty
    return HEAD + "".join(f"{each.hex()}\t{line}\n" for each, line in zip(names, lines, strict=False))


if __name__ == "__main__":
    STORED.write_text(table())
