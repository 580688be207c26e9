#!/bin/sh
# Progress: a refreshed line that fits the terminal, lines without one, and silence where asked for.
set -u
: "${PACELINE:?}"
python=$(command -v python3) || { echo "skipped: python3 is not installed"; exit 77; }
exec "$python" - <<'PYTHON'
import fcntl, os, pty, re, signal, socket, struct, subprocess, sys, termios, time, tempfile

PACELINE = os.environ["PACELINE"]
BAD = []
RUN = ["train", "--data", "digits:samples=300,test=50", "--model", "softmax", "--workers", "2",
       "--delay", "const:t=0.01"]


def check(ok, what):
    if not ok:
        BAD.append(what)
        print("FAIL:", what)


def size(fd, columns):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


def without_header(text):
    """Leaves out the lines that say what the run is; lines of progress are not indented by two."""
    return re.sub(r"^paceline [^:]*: (train|serve|simulate|race), run.*?\n((  | {12})\S.*?\n)*", "",
                  text)


def without_warnings(text):
    """Leaves out messages above the line of progress: a busy machine makes workers slow."""
    return re.sub(r"(\r\x1b\[J)?paceline: warning: [^\n]*\n(  [^\n]*\n)*", "", text)


def on_terminal(arguments, columns, term="xterm", then=None):
    """Runs on a terminal with that many columns, after two lines with `then`, and, if so, ends the
    run four lines later; returns what standard error got, before and after the change."""
    master, slave = pty.openpty()
    size(slave, columns)
    env = dict(os.environ, TERM=term)
    child = subprocess.Popen([PACELINE] + arguments, stdin=slave, stdout=subprocess.DEVNULL,
                             stderr=slave, env=env, start_new_session=True)
    os.close(slave)
    parts, changed, ended = [b"", b""], False, False
    erase = ESCAPE.encode()
    while True:
        if then and not changed and parts[0].count(erase) >= 2:
            size(master, then)
            os.killpg(child.pid, signal.SIGWINCH)
            changed = True
        if changed and not ended and parts[1].count(erase) >= 4:
            os.kill(child.pid, signal.SIGTERM)
            parts[1] = parts[1][:parts[1].rindex(erase) + len(erase)]  # may be half a line
            ended = True
        try:
            data = os.read(master, 4096)
        except OSError:
            break
        if not data:
            break
        if not ended:
            parts[1 if changed else 0] += data
    child.wait()
    os.close(master)
    parts = [p.decode() for p in parts]
    return [without_warnings(part) for part in (without_header(parts[0]), parts[1])]


ESCAPE = "\r\x1b[J"


def lines_of(text):
    return [l.rstrip("\r") for l in text.split(ESCAPE) if l.strip("\r")]


long = RUN + ["--time", "1.6"]
for columns in (200, 80, 60, 20):
    text = on_terminal(long, columns)[0]
    lines = lines_of(text)
    check(len(lines) >= 1, f"{columns} columns: {len(lines)} refreshes: {text!r}")
    check(all(len(l) < columns for l in lines), f"{columns} columns: a line is too wide: {lines}")
    check(text.endswith(ESCAPE), f"{columns} columns: the line is left behind: {text!r}")
    check("\n" not in text, f"{columns} columns: a line break: {text!r}")
    last = lines[-1]
    if columns >= 60:
        # one that is drawn after the limit, on a slow machine, has nothing left to estimate
        begin = r"( *\d+ %  [\d.]+ s  ETA \d+ s|100 %  [\d.]+ s)"
        check(re.match(begin + r"  loss [\d.]+  accuracy [\d.]+", last),
              f"{columns} columns: {last!r}")
    if columns == 200:
        check(re.search(r"update \d+  .*K \d+  stale [\d./]+  workers 2/2  unused \d+$", last),
              last)
    if columns == 20:
        check(re.match(r" *\d+ %", last), f"20 columns: {last!r}")

# with a time limit the estimate is at most what the limit leaves, also if the first worker comes
# late, so that little was done since the first line
master, slave = pty.openpty()
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    address = "127.0.0.1:%d" % free.getsockname()[1]
child = subprocess.Popen([PACELINE, "serve", "--listen", address, "--insecure", "--workers", "1",
                          "--data", "digits:samples=300,test=50", "--model", "softmax", "--time",
                          "3"], stdout=subprocess.DEVNULL, stderr=slave,
                         env=dict(os.environ, TERM="xterm"))
os.close(slave)
time.sleep(2)
worker = subprocess.Popen([PACELINE, "work", address], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL)
text = b""
try:
    while data := os.read(master, 4096):
        text += data
except OSError:
    pass
os.close(master)
child.wait()
worker.wait()
left = [(float(t), float(eta), unit)
        for t, eta, unit in re.findall(r"([\d.]+) s  ETA ([\d.]+) (\w+)", text.decode())]
check(left and all(unit == "s" and t + eta < 3 + 1 for t, eta, unit in left), f"ETA: {left}")

# a window that becomes narrower: later lines fit, and the cursor is left where erasing works
before, after = on_terminal(RUN + ["--time", "600"], 120, then=50)
late = lines_of(after)[1:]  # the first one may have been on its way
check(late and all(len(l) < 50 for l in late), f"a narrower window: {late}")
check(all(part == "" or part.endswith("\r") for part in (before + after).split(ESCAPE)),
      f"the cursor is not left at the beginning: {before + after!r}")

text = on_terminal(RUN + ["--updates", "60"], 80, term="dumb")[0]
check("\x1b" not in text and "%" in text, f"a dumb terminal: {text!r}")
text = on_terminal(long + ["--quiet"], 80)[0]
check(text == "", f"--quiet on a terminal: {text!r}")


def piped(arguments):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([PACELINE] + arguments, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, cwd=folder)
        check(done.returncode == 0, f"{arguments}: status {done.returncode}: {done.stderr}")
        return done.stdout.decode(), done.stderr.decode()


simulated = ["simulate", "--data", "digits:samples=300,test=50", "--model", "softmax",
             "--updates", "100", "--eval-every", "5"]
with tempfile.TemporaryDirectory() as folder:
    points = os.path.join(folder, "points")
    out, err = piped(simulated + ["--log", points])
    n = len(open(points).read().splitlines())
shown = [l for l in err.splitlines() if re.match(r" *\d+ %  [\d.e-]+ s .*loss [\d.]+", l)]
check(n > 2 and len(shown) == n, f"{n} evaluations, but {len(shown)} lines: {err}")
check("\x1b" not in err and "%" not in out.split("worker time")[0], "escapes, or lines on stdout")
# not more than a line per per cent of the run, and one per minute
begun = time.monotonic()
err = piped(simulated + ["--updates", "3000", "--eval-every", "0.5"])[1]
shown = re.findall(r"^ *\d+ %  ", err, re.M)
most = 102 + (time.monotonic() - begun) / 60
check(50 < len(shown) <= most, f"{len(shown)} lines of progress for 3000 updates")
check(shown and shown[-1] == "100 %  ", f"the last line is {shown[-1:]}")
# a loss that runs away has an exponent
done = subprocess.run([PACELINE, "simulate", "--model", "quadratic", "--method", "sync", "--lr",
                       "30", "--updates", "100"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
losses = re.findall(rb"loss (\S+)", done.stderr)
check(re.search(rb"loss \d\.\d+e\+", done.stderr) and
      all(len(re.findall(rb"\d", x.split(b"e")[0])) <= 5 for x in losses),
      f"a large loss: {done.stderr}")
check(piped(simulated + ["--quiet"])[1] == "", "--quiet is not quiet")
check(piped(simulated + ["--json"])[1] == "", "--json is not quiet")
out, err = piped(["race", "sync", "async", "--model", "quadratic", "--updates", "30"])
check(len(re.findall(r"^  tuned (?:a?sync): lr [\d.]+, the best of \d+$", err, re.M)) == 2,
      f"tuning: {err!r}")
check(len(re.findall(r"^[12]/2 a?sync  [\d.]+ s  loss", err, re.M)) == 2, f"race: {err!r}")


def wrapped(arguments):
    """What a terminal of 80 columns without a cursor gets."""
    master, slave = pty.openpty()
    size(slave, 80)
    with tempfile.TemporaryDirectory() as folder:
        child = subprocess.Popen([PACELINE] + arguments, stdin=slave, stdout=slave, stderr=slave,
                                 env=dict(os.environ, TERM="dumb"), cwd=folder)
        os.close(slave)
        text = b""
        try:
            while True:
                text += os.read(master, 4096)
        except OSError:
            pass
        child.wait()
    os.close(master)
    return text.decode().replace("\r", "")


# header, messages, summary and sentences break between words on a terminal, and there only
text = wrapped(simulated + ["--lr", "0.1", "--lr", "0.2"])
wide = [l for l in text.splitlines() if len(l) > 79 and " %  " not in l]
check(not wide, f"wide lines on a terminal: {wide}")
check(re.search(r"^  data      digits[^\n]*\n {12}\S", text, re.M), f"the header: {text}")
check(re.search(r"^  worker time  [^\n]*\n {21}\S", text, re.M), f"the summary: {text}")
plain, same = piped(simulated + ["--quiet"])[0], wrapped(simulated + ["--quiet"])
check(plain.split() == same.split() and plain != same.replace("\n" + 21 * " ", "\n"),
      f"other words on a terminal: {same}, and {plain}")
check(re.search(r"^  worker time .* wasted$", plain, re.M), f"broken in a pipe: {plain}")
small_race = ["race", "sync", "async", "--model", "quadratic", "--updates", "30", "--tune", "no",
              "--quiet"]
text = wrapped(small_race).split("\nmethod ")
wide = [l for l in (text[0] + text[-1].split("\n\n", 1)[1]).splitlines() if len(l) > 79]
check(not wide and "sorted by training loss" in text[0], f"a race on a terminal: {wide}, {text}")
check(" ".join(wrapped(small_race).split()) == " ".join(piped(small_race)[0].split()),
      "other words of a race on a terminal")


def grows(text, what):
    """Runs that are done, and per cent of them, never become fewer; while their number may grow
    there is no percentage, which would go back, and no time that is left."""
    lines = re.findall(r"(\d+) of (at least )?(\d+) runs done(?:  +(\d+) %)?([^\r\n]*)", text)
    ended = [int(l[0]) for l in lines]
    shares = [int(l[3]) for l in lines if l[3]]
    check(ended == sorted(ended) and shares == sorted(shares), f"{what} goes back: {text!r}")
    check(all(bool(l[1]) != bool(l[3]) for l in lines), f"{what}: per cent of what: {text!r}")
    check(not any(l[1] and "ETA" in l[4] for l in lines), f"{what}: a guess: {text!r}")
    return lines


told = grows(err, "a race in a pipe")
check(any(l[1] and "tuning " in l[4] for l in told), f"tuning in a pipe: {err!r}")
check(told and told[-1][0] == told[-1][2] and told[-1][3] == "100", f"the end of a race: {err!r}")
err = piped(["race", "sync", "async", "kasync", "abs", "--model", "quadratic", "--updates", "30",
             "--seeds", "5"])[1]
unsure = [l for l in grows(err, "many runs in a pipe") if l[1]]
check(0 < len(unsure) <= 12, f"{len(unsure)} lines before the number of runs is known: {err!r}")
err = piped(["race", "sync", "async", "--model", "quadratic", "--updates", "30", "--tune", "no"])[1]
told = grows(err, "a race that is not tuned")
check(told and all(l[2] == "2" for l in told), f"a race that is not tuned: {err!r}")
with tempfile.TemporaryDirectory() as folder:
    small = ["--data", "digits:samples=600,test=100", "--model", "softmax", "--target-accuracy",
             "0.8", "--time", "1000", "--seeds", "2", "--out", os.path.join(folder, "race")]
    grows(on_terminal(["race", "sync", "async"] + small, 120)[0], "a race on a terminal")
check(piped(["race", "sync", "--model", "quadratic", "--updates", "30", "--quiet"])[1] == "",
      "race --quiet is not quiet")

# a run that is resumed has the limits of its checkpoint
with tempfile.TemporaryDirectory() as folder:
    folder = os.path.join(folder, "two words")
    child = subprocess.Popen([PACELINE] + RUN + ["--time", "3", "--checkpoint", folder],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while b" % " not in child.stderr.readline():
        check(child.poll() is None, "a run without progress")
    child.send_signal(signal.SIGINT)
    out = child.communicate()[0].decode()
    check(f"(--resume '{folder}' continues)" in out, f"not for a shell: {out}")
    err = piped(["train", "--resume", folder, "--eval-every", "0.2"])[1]
    shown = re.findall(r"^ *(\d+) %  ([\d.e-]+) s ", err, re.M)
    check(shown and all(abs(int(p) - min(100, 100 * float(t) / 3)) < 1.1 for p, t in shown),
          f"the progress of a resumed run: {err}")

# a first evaluation that takes long has a line, and a signal is answered at once
child = subprocess.Popen([PACELINE, "simulate", "--data", "digits:side=16", "--model",
                          "cnn:filters=64,64,kernel=9", "--eval-samples", "10000", "--threads",
                          "1"],
                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
line = b"x"
while line and b"not evaluated yet" not in line:
    line = child.stderr.readline()
check(line, "a first evaluation that takes long has no line")
child.send_signal(signal.SIGINT)
err = child.communicate()[1].decode()
check(child.returncode == 130, f"the first evaluation was interrupted: {child.returncode}")
check(re.search("the run is ending, .*\n.*no losses\n.*these are the results", err),
      f"the first evaluation was interrupted: {err}")

# nobody reads standard error: the run goes on
child = subprocess.Popen([PACELINE] + simulated, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
child.stderr.close()
out = child.stdout.read()
check(child.wait() == 0 and b"time per update" in out, "a closed standard error ends the run")

# each line is written at once: lines of several processes that share a stream do not mix
for arguments in (["train", "--lr", "x"], ["simulate", "--model", "none", "--updates", "9"]):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)  # a packet per write
    subprocess.run([PACELINE] + arguments, stdout=subprocess.DEVNULL, stderr=theirs)
    theirs.close()
    ours.setblocking(False)
    pieces = []
    try:
        while len(pieces) < 1000:
            pieces.append(ours.recv(65536))
    except (BlockingIOError, ConnectionResetError):
        pass
    ours.close()
    check(pieces and all(p.endswith(b"\n") for p in pieces),
          f"{arguments}: {len(pieces)} pieces: {pieces[:5]}")

# Ctrl-Z and fg: nobody was slow. What a pause makes of a task is longer than the pause; on a busy
# machine a task may well be slow, but not for longer than the run was awake. The pause must be
# longer than that.
for pause in (3.5, 7, 14, 28, 56):
    begun = time.monotonic()
    child = subprocess.Popen([PACELINE] + RUN + ["--method", "async", "--time", "600", "--quiet"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                             start_new_session=True)
    time.sleep(1)
    os.killpg(child.pid, signal.SIGSTOP)
    stopped = time.monotonic()
    time.sleep(pause)
    stopped = time.monotonic() - stopped
    os.killpg(child.pid, signal.SIGCONT)
    time.sleep(1.5)
    os.kill(child.pid, signal.SIGTERM)
    err = child.communicate()[1].decode()
    awake = time.monotonic() - begun - stopped
    if awake + 0.2 < stopped:
        break
paused = [t for t in re.findall(r"is slow: its task has run for ([\d.]+) s", err)
          if float(t) > awake + 0.1]
check(not paused, f"slow after a pause: {err}")
sys.exit(1 if BAD else 0)
PYTHON
