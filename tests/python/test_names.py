"""Names, exceptions and layers of the package, read off its source."""

import ast
import builtins
import glob
import logging
import os
import re
import unittest
from typing import Any, Iterator, Set

import paceline
import paceline.options
from pages import check_documented, run_examples
from paceline import loop

PACKAGE = os.path.join(os.environ["SOURCE_DIR"], "python", "paceline")

# Members with an underscore that Python and PyTorch document under that name.
DOCUMENTED = {"_exit", "_fields_", "_version", "_buffers"}


def modules() -> Iterator[Any]:
    for path in sorted(glob.glob(os.path.join(PACKAGE, "**", "*.py"), recursive=True)):
        with open(path) as f:
            yield os.path.relpath(path, PACKAGE), ast.parse(f.read())


def own_members(tree: ast.AST) -> Set[str]:
    """The names with an underscore that the classes and functions of a module define."""
    own = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            own.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if getattr(node.value, "id", "") in ("self", "cls"):
                own.add(node.attr)
    return own


class Names(unittest.TestCase):
    def test_nothing_shadows_a_builtin(self) -> None:
        for name in paceline.__all__ + paceline.options.__all__:
            self.assertFalse(hasattr(builtins, name), name)
            self.assertTrue(hasattr(paceline, name) or hasattr(paceline.options, name), name)

    def test_option_types_have_a_module_of_their_own(self) -> None:
        for name in ("Bool", "Bound", "Choice", "Count", "Int", "Real", "Text"):
            self.assertIn(name, paceline.options.__all__)
            self.assertFalse(hasattr(paceline, name), name)

    def test_exceptions_are_those_that_people_catch(self) -> None:
        for mine, theirs in (
            (paceline.UsageError, ValueError),
            (paceline.DataError, ValueError),
            (paceline.FileError, OSError),
            (paceline.OutOfMemory, MemoryError),
            (paceline.TimedOut, TimeoutError),
            (paceline.Interrupted, InterruptedError),
            (paceline.MissingError, ImportError),
            (paceline.RunError, RuntimeError),
            (paceline.PolicyError, RuntimeError),
        ):
            self.assertTrue(issubclass(mine, (theirs,)) and issubclass(mine, paceline.Error), mine)

    def test_private_members_stay_in_their_module(self) -> None:
        for path, tree in modules():
            own = own_members(tree) | DOCUMENTED
            for node in ast.walk(tree):
                if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
                    fits = node.attr in own or node.attr.startswith("__")
                    self.assertTrue(fits, f"{path}:{node.lineno}: {ast.unparse(node)}")

    def test_only_torch_and_simulation_import_torch(self) -> None:
        for path, tree in modules():
            for node in tree.body:
                if isinstance(node, (ast.Import, ast.ImportFrom)) and not path.startswith("torch/"):
                    names = [getattr(node, "module", None)] + [a.name for a in node.names]
                    far = isinstance(node, ast.Import) or node.level == 0
                    self.assertFalse(far and "torch" in names, f"{path}:{node.lineno}")

    def test_everything_public_is_documented(self) -> None:
        for module in (paceline, paceline.options, paceline.errors, paceline.policy, loop):
            check_documented(self, module)

    def test_public_modules(self) -> None:
        """Whatever else a module is called, it is not for users."""
        public = {path for path, _ in modules() if not re.search(r"(^|/)_[a-z]", path)}
        folders = {"__init__.py", "policy/__init__.py", "torch/__init__.py", "__main__.py"}
        known = folders | {"errors.py", "loop.py", "options.py", "simulation.py"}
        self.assertEqual(public - known, set())

    def test_examples(self) -> None:
        for module in (paceline, paceline.options, paceline.policy, loop):
            run_examples(self, module, paceline=paceline, Policy=paceline.Policy)

    def test_messages_have_a_level_of_logging(self) -> None:
        """on_log takes the log function of a logger, and no message is told by its words."""
        with self.assertLogs("run", logging.DEBUG) as caught:
            paceline.simulate(
                model="quadratic", lr=1e5, updates=500, on_log=logging.getLogger("run").log
            )
        self.assertEqual({r.levelno for r in caught.records} - {10, 20, 30}, set())
        self.assertIn(logging.WARNING, {r.levelno for r in caught.records})


if __name__ == "__main__":
    unittest.main()
