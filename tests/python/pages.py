"""Runs the Python blocks of a page of docs/ as one program, and the examples of docstrings."""

import doctest
import inspect
import os
import re
import unittest
from typing import Any, Dict


def run_page(name: str) -> int:
    with open(os.path.join(os.environ["SOURCE_DIR"], "docs", name)) as f:
        blocks = re.findall(r"^```python\n(.*?)^```", f.read(), re.S | re.M)
    space: Dict[str, Any] = {}
    for i, block in enumerate(blocks):
        exec(compile(block, f"{name}, block {i + 1}", "exec"), space)
    return len(blocks)


def check_documented(test: unittest.TestCase, module: Any) -> None:
    """Every public object and its public members have a docstring."""
    for name in module.__all__:
        thing = getattr(module, name)
        if inspect.isclass(thing):
            for key, member in vars(thing).items():
                if inspect.isfunction(member) or isinstance(member, property):
                    documented = key.startswith("_") or inspect.getdoc(member)
                    test.assertTrue(documented, f"{name}.{key}")
        if inspect.isclass(thing) or inspect.isfunction(thing):
            test.assertTrue(inspect.getdoc(thing), name)


def run_examples(test: unittest.TestCase, module: Any, **names: Any) -> None:
    """Everything public has a docstring with an example, or one that names another with an example.
    Public members may have examples too. The examples know `names`."""
    finder, runner = doctest.DocTestFinder(recurse=True), doctest.DocTestRunner(verbose=False)
    for name in module.__all__:
        thing = getattr(module, name)
        is_error = inspect.isclass(thing) and issubclass(thing, Exception)
        if not (inspect.isclass(thing) or inspect.isfunction(thing)):
            continue
        text = inspect.getdoc(thing) or ""
        other = re.search(r"example\s+of\s+`(\w+)`", text)
        shown = getattr(module, other[1], names.get(other[1])) if other else thing
        known = ">>>" in (inspect.getdoc(shown) or "") or (is_error and name != "Error")
        test.assertTrue(known, f"{name} has no example")
        for example in finder.find(thing, name, globs=names):
            test.assertEqual(runner.run(example).failed, 0, name)
