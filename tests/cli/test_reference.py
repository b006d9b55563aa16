from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_reference_is_up_to_date(tmp_path: Path) -> None:
    made = tmp_path / "cli.md"
    subprocess.run([sys.executable, str(ROOT / "tools/cli_reference.py"), str(made)], cwd=ROOT, check=True)
    assert made.read_text(encoding="utf-8") == (ROOT / "docs/cli.md").read_text(encoding="utf-8"), "run make docs"
