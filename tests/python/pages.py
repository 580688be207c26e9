"""Runs the Python blocks of a page of docs/ as one program."""

import os
import re
from typing import Any, Dict


def run_page(name):
    with open(os.path.join(os.environ["SOURCE_DIR"], "docs", name)) as f:
        blocks = re.findall(r"^```python\n(.*?)^```", f.read(), re.S | re.M)
    space: Dict[str, Any] = {}
    for i, block in enumerate(blocks):
        exec(compile(block, f"{name}, block {i + 1}", "exec"), space)
    return len(blocks)
