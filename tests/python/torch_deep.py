"""What bench/deep.py says of results: a best rate at an edge of those tried shows nothing."""

import importlib
import os
import sys
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "bench"))
deep = importlib.import_module("deep")


class Given:
    claim, epochs, seeds, device = "backup-resnet", 30, 3, "cpu"


def found(*rows):
    """Runs of three seeds that need so many seconds to the target."""
    return {entrant: [(0.8, 100.0, t + s) for s in (0, 0.1, 0.2)] for entrant, t in rows}


def verdict(*rows):
    claim = deep.Claim(
        "", "", "", [e for e, _ in rows if e[0] == "b"], [e for e, _ in rows if e[0] == "a"],
        workers=2, batch=1, epochs=30, delay="", every=1, target=0.75, least=1,
    )  # fmt: skip
    return deep.outcome(Given, claim, found(*rows))["claims"][0]["verdict"]


class Edges(unittest.TestCase):
    backup = (("b@lr=0.2", 12), ("b@lr=0.4", 10), ("b@lr=0.8", 11))

    def test_between_others(self):
        rows = (("a@lr=0.1", 21), ("a@lr=0.2", 20), ("a@lr=0.4", 22))
        self.assertEqual(verdict(*self.backup, *rows), "shown")

    def test_at_an_edge(self):
        for rows in ((("a@lr=0.1", 21), ("a@lr=0.2", 20)), (("a@lr=0.1", 20),)):
            self.assertRegex(verdict(*self.backup, *rows), "cannot be told: .* edge .* for a")
        self.assertRegex(verdict(*self.backup[:2], ("a", 20)), "0.4 of 0.2, 0.4 for b")

    def test_no_choice_of_rates(self):
        self.assertEqual(verdict(("b", 10), ("a", 20)), "shown")

    def test_other_verdicts(self):
        self.assertEqual(verdict(*self.backup, ("a@lr=0.1", 5)), "not shown")


if __name__ == "__main__":
    unittest.main()
