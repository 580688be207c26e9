# %% [markdown]
# A walk through Paceline, cell by cell, for an editor or notebook that knows `# %%`. It runs as a
# plain script as well, needs no PyTorch, and writes into the current folder.

# %% Simulate: which worker computes what and when, on a virtual clock, with real gradients
import subprocess
import sys

import paceline

DELAY = "pareto:shape=2,scale=0.1"
SETTING = dict(workers=8, model="softmax", data="digits", delay=DELAY)
run = paceline.simulate(method="gap-aware", updates=200, **SETTING)
print(
    f"{run['updates']:.0f} updates in {run['time']:.1f} virtual s, {run['staleness.mean']:.1f} stale"
)

# %% Evaluations are objects, so a plot or a data frame is one line away
curve = [(point.time, point.test_accuracy) for point in run.points]
print("accuracy", " ".join(f"{accuracy:.2f}" for _, accuracy in curve))

# %% Which methods are there, and what is one made of?
print(len(paceline.catalog("method")), "methods")
print(paceline.Setup(method="gap-aware").method()["policy"])

# %% Compare: the same delays, the same time
for method in ("sync", "async", "gap-aware"):
    other = paceline.simulate(method=method, time=20, **SETTING)
    print(f"{method:10} accuracy {other['test_accuracy']:.2f} after {other['updates']:.0f} updates")

# %% Race: the command line finds a good rate for each method, and writes a folder
PROGRAM = [sys.executable, "-m", "paceline"]
SPECS = ["--workers", "8", "--data", "digits", "--model", "softmax", "--delay", DELAY]
LIMITS = ["--time", "20", "--target-accuracy", "0.5", "--seeds", "1", "--out", "race-walk"]
subprocess.run([*PROGRAM, "race", "sync", "gap-aware", *SPECS, *LIMITS], check=True)

# %% Report: one page with curves, tables and who held up whom; open it in a browser
subprocess.run([*PROGRAM, "report", "race-walk", "-o", "report.html"], check=True)
