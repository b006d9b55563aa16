"""What Kafka makes of names by rules: `python -m tests.auth.rule_vectors` asks Kafka and writes principal_rules.tsv."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.interop.java_programs import jars, source

STORED = Path(__file__).with_name("principal_rules.tsv")
HEAD = "# Rules, a name, and what Kafka's SslPrincipalMapper makes of it; !rules, !name where it refuses one.\n"

NAMES = [
    "CN=Duke,OU=ServiceUsers,O=Org,C=US",
    "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US",
    "cn=duke,ou=sme,dc=mycp,dc=com",
    "cN=duke,OU=JavaSoft,O=Sun Microsystems",
    "OU=JavaSoft,O=Sun Microsystems,C=US",
    "CN=Tkac\\, Adam,OU=ITZ,DC=geodis,DC=cz",
    "CN=aa",
]
RULES = [
    "DEFAULT",
    "",
    ",   , , ,",
    " DEFAULT ,DEFAULT",
    "default",
    "DEFAUL",
    "DEFAULT/L",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, DEFAULT",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U,  DEFAULT",
    "RULE:^CN=([^,ADEFLTU,]+)(,.*|$)/$1/",
    "RULE:^CN=([^,DEFAULT,]+)(,.*|$)/$1/",
    "RULE:^CN=((\\\\, *|\\w)+)(,.*|$)/$1/,DEFAULT",
    "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
    "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/LU",
    "RULE://,DEFAULT",
    "RULE:.*/X/",
    "RULE:.+/X/",
    "RULE:CN=(.*?)/<$1>/",
    "RULE:.*?/-/",
    "RULE:(CN|cn|OU|,|=|.)*/-/",
    "RULE:(CN=)?(.*)/$2$1/",
    "RULE:(x)?.+/[$1]/",
    "RULE:^CN=(\\w+),.*$/$0/",
    "RULE:^CN=(\\w+),.*$/$00$01/",
    "RULE:^CN=(\\w+),.*$/$2 $1/",
    "RULE:^CN=(\\w+),.*$/$12-$10/",
    "RULE:^CN=(?<who>\\w+),.*$/${who}\\$1\\/x/",
    "RULE:^CN=(\\w+),OU=\\w+,O=(.*)$/$1\\\\$2/U",
    "RULE:^([a-zA-Z=]+),.*$/\\a$1/,DEFAULT",
    "RULE:,RULE:,/,RULE:,\\//U,RULE:,/RULE:,/,DEFAULT",
    "  RULE:([A-Z]*)/$1/U   ,RULE:([a-z]+)/$1/,   DEFAULT  ",
    "RULE:   /     / ,  DEFAULT  ",
    "RULE:^CN=(\\w+),OU=(?i:serviceusers),.*$/$1/L",
]


def ask(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """What Kafka says to each."""
    asked = "".join(f"{rules}\t{name}\n" for rules, name in pairs)
    said = subprocess.run(
        ["java", "-cp", f"{jars('kafka')}/*", source("kafka", "PrincipalRules.java")],
        input=asked.encode(),
        capture_output=True,
        check=True,
    )
    return said.stdout.decode().split("\n")[:-1]


def table() -> str:
    pairs = [(rules, name) for rules in RULES for name in NAMES]
    lines = zip(pairs, ask(pairs), strict=True)
    return HEAD + "".join(f"{rules}\t{name}\t{answer}\n" for (rules, name), answer in lines)


if __name__ == "__main__":
    STORED.write_text(table())
