"""The examples, for real and simulated, and every command of the pages about them."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest

SOURCE = os.environ["SOURCE_DIR"]
PYTHON = os.environ["PYTHON"]
SMALL = {
    "resnet20": ["--samples", "200", "--batch", "8", "--width", "4", "--depth", "1"],
    "chars": [
        "--samples",
        "200",
        "--batch",
        "8",
        "--width",
        "16",
        "--length",
        "16",
        "--layers",
        "1",
    ],
}


def run(folder, command, limit=100):
    done = subprocess.run(
        command,
        cwd=folder,
        shell=isinstance(command, str),
        timeout=limit,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


class Examples(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        # the pages say python3
        os.symlink(shutil.which(PYTHON), os.path.join(self.folder, "python3"))
        os.environ["PATH"] = self.folder + os.pathsep + os.environ["PATH"]

    def test_examples(self):
        # fashion.py is in a page
        for name, method in (("resnet20", "sync"), ("chars", "diloco:u=3")):
            program = [PYTHON, os.path.join(SOURCE, "examples", name + ".py"), *SMALL[name]]
            program += ["--method", method, "--updates", "4"]
            with self.subTest(name):
                real = run(self.folder, ["paceline", "launch", "-n", "2", "--", *program])
                self.assertRegex(real, r"\[0\] 4 updates, .* test loss \d+\.\d+")
                simulated = run(self.folder, [*program, "--simulate", "--workers", "3"])
                self.assertRegex(simulated, r"4 updates, .* virtual seconds, test loss \d+\.\d+")

    def page(self, name):
        with open(os.path.join(SOURCE, "docs", name)) as f:
            text = f.read()
        for block in re.findall(r"^```python\n# (\S+)\n(.*?)^```", text, re.S | re.M):
            with open(os.path.join(self.folder, block[0]), "w") as f:
                f.write(block[1])
        out = []
        for block in re.findall(r"^```console\n(.*?)^```", text, re.S | re.M):
            lines = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
            self.assertTrue(lines)
            out.append(run(self.folder, "set -e\n" + "\n".join(lines)))
        return out

    def test_from_ddp(self):
        first, second = self.page("from-ddp.md")
        self.assertEqual(first.count("[0] updates 200"), 2, first)
        self.assertEqual(second.count("updates 200"), 1, second)

    def test_which_method(self):
        for name in ("common.py", "fashion.py"):
            shutil.copy(os.path.join(SOURCE, "examples", name), self.folder)
        (out,) = self.page("which-method.md")
        self.assertIn("20 updates", out)

    def test_adapters_compile(self):
        for name in ("lightning.py", "accelerate.py"):
            with open(os.path.join(SOURCE, "examples", name)) as f:
                text = f.read()
            compile(text, name, "exec")
            self.assertLess(len(text.splitlines()), 60)


if __name__ == "__main__":
    unittest.main()
