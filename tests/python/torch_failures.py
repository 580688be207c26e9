"""Workers that are killed, frozen, interrupted, join late, or do not fit; a server that is gone: one
clear exception, and never a hang."""

import multiprocessing
import os
import signal
import socket
import stat
import threading
import time
import unittest
import unittest.mock
from typing import Any, Callable, Dict

import torch

import paceline
import paceline.torch as pl
from paceline import _roles
from paceline.torch._evaluator import Evaluator
from workers import CROSS_ENTROPY, backward, batch, net, roles, to_the_end, together

FORK = multiprocessing.get_context("fork")
LIMIT = 600  # seconds in which everything here must end


def work(
    role: pl.Role,
    say: Any,
    method: str = "async",
    make: Callable[[], torch.nn.Module] = net,
    pause: float = 0.0,
    **options: Any,
) -> None:
    """One worker; tells what happened."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        model = make()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        opt = pl.Optimizer(optimizer, model, method, role=role, **options)
        server = opt._session.server
        say.send(("began", role.rank, server._process.pid if server else 0))
        step = 0
        while not opt.ended:
            time.sleep(pause)
            opt.zero_grad()
            x, y = batch(step, role.rank)
            loss = CROSS_ENTROPY(model(x), y)
            loss.backward()
            opt.step(loss)
            step += 1
        opt.close()
        say.send(("ended", role.rank, opt.summary()))
    except KeyboardInterrupt:
        opt.__exit__(KeyboardInterrupt)
        say.send(("interrupted", role.rank, None))
    except paceline.Error as e:
        say.send(("failed", role.rank, (type(e).__name__, str(e))))


class Failures(unittest.TestCase):
    def setUp(self) -> None:
        self.process: Dict[int, Any] = {}
        self.pipe: Dict[int, Any] = {}

    def tearDown(self) -> None:
        for p in self.process.values():
            if p.is_alive():
                p.kill()
            p.join(LIMIT)

    def start(self, role: pl.Role, **options: Any) -> None:
        self.pipe[role.rank], say = FORK.Pipe(duplex=False)
        p = FORK.Process(target=work, args=(role, say), kwargs=options)
        p.start()
        say.close()
        self.process[role.rank] = p

    def hear(self, what: str, rank: int) -> Any:
        """Waits until a rank tells something, and returns it."""
        self.assertTrue(self.pipe[rank].poll(LIMIT), f"rank {rank} is silent")
        said, _, told = self.pipe[rank].recv()
        self.assertEqual(said, what, told)
        return told

    def test_killed_and_replaced(self) -> None:
        """The others go on without a killed worker, and another takes its place."""
        r = roles(3)
        for role in r:
            self.start(role, method="sync", updates=150, pause=0.01)
        for rank in range(3):
            self.hear("began", rank)
        self.process[1].kill()
        self.process[1].join(LIMIT)
        self.start(r[1], method="sync", updates=150, pause=0.01)
        self.hear("began", 1)
        for rank in (1, 2):
            self.hear("ended", rank)
        summary = self.hear("ended", 0)
        self.assertEqual(summary["run"]["updates"], 150)
        self.assertGreaterEqual(summary["run"]["tasks"]["lost"], 1)

    def test_frozen(self) -> None:
        """A frozen worker holds up nobody; when it continues, the run is over for it too."""
        for role in roles(2):
            self.start(role, updates=200, pause=0.002)
        for rank in range(2):
            self.hear("began", rank)
        os.kill(self.process[1].pid, signal.SIGSTOP)
        try:
            summary = self.hear("ended", 0)
        finally:
            os.kill(self.process[1].pid, signal.SIGCONT)
        self.assertEqual(summary["run"]["updates"], 200)
        self.process[1].join(LIMIT)
        self.assertFalse(self.process[1].is_alive())

    def test_interrupted(self) -> None:
        """Ctrl-C while a worker waits for another one."""
        r = roles(2)
        self.start(r[0], method="sync", updates=50, pause=2 * LIMIT)
        self.start(r[1], method="sync", updates=50)
        for rank in range(2):
            self.hear("began", rank)
        time.sleep(0.5)
        os.kill(self.process[1].pid, signal.SIGINT)
        self.hear("interrupted", 1)

    def test_server_killed(self) -> None:
        for role in roles(2):
            self.start(role, updates=10**6, pause=0.01)
        server = self.hear("began", 0)
        self.hear("began", 1)
        os.kill(server, signal.SIGKILL)
        for rank in range(2):
            kind, sentence = self.hear("failed", rank)
            self.assertEqual(kind, "RunError")
            self.assertIn("server", sentence)

    def test_rank_0_killed(self) -> None:
        """The server dies with it, and the others hear of it."""
        for role in roles(2):
            self.start(role, updates=10**6, pause=0.01)
        server = self.hear("began", 0)
        self.hear("began", 1)
        self.process[0].kill()
        kind, sentence = self.hear("failed", 1)
        self.assertEqual((kind, "is gone" in sentence), ("RunError", True), sentence)
        self.process[0].join(LIMIT)
        end = time.monotonic() + LIMIT
        while _runs(server) and time.monotonic() < end:
            time.sleep(0.05)
        self.assertFalse(_runs(server))

    def test_mismatched(self) -> None:
        """Another shape, and other names."""
        r = roles(2)
        self.start(r[0], updates=10)
        for make, expected in (
            (lambda: net(width=9), "parameters"),
            (lambda: torch.nn.Sequential(torch.nn.ReLU(), *net()), "tensors"),
        ):
            self.start(r[1], make=make)
            kind, sentence = self.hear("failed", 1)
            self.assertEqual(kind, "RunError")
            self.assertIn(expected, sentence)
            self.process[1].join(LIMIT)

    def test_changed_parameters(self) -> None:
        def worker(role: pl.Role) -> None:
            model = net()
            opt = pl.Optimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, role=role)
            with self.assertRaisesRegex(paceline.UsageError, "cannot be added"):
                opt.add_param_group({"params": [torch.nn.Parameter(torch.zeros(2))]})
            old = opt.param_groups[0]["params"].pop()
            with self.assertRaisesRegex(paceline.UsageError, "have changed"):
                opt.step()
            opt.param_groups[0]["params"].append(old)
            model[0].bias.data = torch.zeros(3)
            with self.assertRaisesRegex(paceline.UsageError, "had the shape"):
                opt.step()
            model[0].bias.data = torch.zeros(8)
            opt.close()
            with self.assertRaises(paceline.RunEnded):
                opt.step()

        together(1, worker)

    def test_changed_rates(self) -> None:
        def worker(role: pl.Role) -> None:
            model = net()
            groups = [{"params": [p]} for p in model.parameters()]
            opt = pl.Optimizer(torch.optim.SGD(groups, lr=0.1), model, role=role)
            opt.param_groups[1]["lr"] = 0.05
            with self.assertRaisesRegex(paceline.UsageError, "in relation to each other"):
                opt.step()
            opt.close()

        together(1, worker)

    def test_nobody_there(self) -> None:
        role = roles(2)[1]
        with unittest.mock.patch("paceline.torch._session.WAIT", 0.5):
            with self.assertRaises(paceline.FileError):
                model = net()
                pl.Optimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, role=role)

    def test_rank_0_cannot_start(self) -> None:
        """The others hear why."""
        r = roles(2)
        self.start(r[0], method="sync:k=3,nonsense=1")
        self.start(r[1], method="sync:k=3,nonsense=1")
        kind, sentence = self.hear("failed", 0)
        self.assertEqual((kind, "nonsense" in sentence), ("UsageError", True), sentence)
        kind, sentence = self.hear("failed", 1)
        self.assertEqual((kind, "nonsense" in sentence), ("RunError", True), sentence)

    def test_one_exception(self) -> None:
        """A wrong method is one exception, not one that came while another was handled."""
        model = net()
        with self.assertRaisesRegex(paceline.UsageError, "did you mean 'async'") as caught:
            pl.Optimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, "asynk")
        self.assertIsNone(caught.exception.__context__)

    def test_not_finite(self) -> None:
        """A result that is not finite is rejected, and the run goes on."""

        def worker(role: pl.Role) -> Any:
            model = net()
            opt = pl.Optimizer(
                torch.optim.SGD(model.parameters(), lr=0.1), model, "async", updates=3, role=role
            )
            step = 0
            while not opt.ended:
                opt.zero_grad()
                x, y = batch(step)
                loss = CROSS_ENTROPY(model(x), y) * (float("inf") if step == 1 else 1)
                loss.backward()
                opt.step(loss)
                step += 1
            return opt.summary()["run"]

        (run,) = together(1, worker)
        self.assertEqual((run["updates"], run["tasks"]["rejected"]), (3, 1))


def _runs(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Roles(unittest.TestCase):
    def test_launchers(self) -> None:
        cases = (
            {"PACELINE": "rank=2,workers=3,socket=/tmp/x/run.socket"},
            {"RANK": "2", "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3", "MASTER_PORT": "1234"},
            {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3", "PMIX_NAMESPACE": "job1"},
            {"PMI_RANK": "2", "PMI_SIZE": "3"},
            {"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "3", "SLURM_JOB_ID": "77"},
        )
        sockets = set()
        for env in cases:
            role = _roles.find(env)
            self.assertEqual((role.rank, role.world_size, role.alone), (2, 3, False), env)
            rank = next(k for k in env if "RANK" in k or "PROCID" in k or k == "PACELINE")
            other = _roles.find(dict(env, **{rank: env[rank].replace("2", "1")}))
            self.assertEqual((other.rank, other.socket), (1, role.socket))
            sockets.add(role.socket)
        self.assertEqual(len(sockets), len(cases))
        # the script of a Slurm job, and no launcher at all
        self.assertTrue(_roles.find({"SLURM_PROCID": "0"}, workers=4).alone)
        self.assertTrue(_roles.find({}, workers=4).alone)

    def test_refused(self) -> None:
        with self.assertRaisesRegex(paceline.UsageError, "rank=N,workers=N"):
            _roles.find({"PACELINE": "/usr/bin/paceline"})
        several = {"RANK": "0", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}
        with self.assertRaisesRegex(paceline.UsageError, "4 of them on one machine.*MASTER_ADDR"):
            _roles.find(several)
        several.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29500", PACELINE_KEYS="keys")
        self.assertEqual(_roles.find(several).listen, "0.0.0.0:29501")
        # 192.0.2.1 is nobody's
        several.update(RANK="5", MASTER_ADDR="192.0.2.1", PACELINE_PORT="7070")
        role = _roles.find(several)
        self.assertEqual((role.rank, role.socket), (5, "https://192.0.2.1:7070"))
        self.assertFalse(role.serves)


class Tasks(unittest.TestCase):
    def test_abandoned(self) -> None:
        """A cancelled task stops inside the model: K-sync restarts the slow worker."""
        stopped = []
        begun = threading.Semaphore(0)  # tasks of rank 1

        class Slow(torch.nn.Module):
            def __init__(self, role: pl.Role) -> None:
                super().__init__()
                self.role, self.net = role, net()

            def forward(self, x: torch.Tensor) -> Any:
                if self.role.rank == 0:
                    return self.net(x)
                begun.release()
                for i in range(100 * LIMIT):
                    time.sleep(0.01)
                    y = self.net(x)
                stopped.append(i)
                return y

        def worker(role: pl.Role) -> Dict[str, Any]:
            model = Slow(role)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            opt = pl.Optimizer(optimizer, model, "ksync:k=1", updates=60, role=role)
            waits = 2 * (role.rank == 0)  # for a task, and for the one after it
            while not opt.ended:
                with opt.task():
                    if waits > 0:
                        begun.acquire()
                        waits -= 1
                    opt.zero_grad()
                    x, y = batch(0)
                    loss = CROSS_ENTROPY(model(x), y)
                    loss.backward()
                    opt.step(loss)
            opt.close()
            return opt.summary()

        first, second = together(2, worker)
        self.assertGreater(second["abandoned"], 0)
        self.assertEqual(stopped, [])
        self.assertEqual(first["run"]["updates"], 60)


class Evicted(unittest.TestCase):
    def test_is_blamed_for_nothing(self) -> None:
        """A worker that was too slow joins again: the memory that its weights came from is the
        server's again, which is no change that the script has made."""
        evicted, joined_again = threading.Event(), threading.Event()

        def worker(role: pl.Role) -> int:
            model = net()
            sgd = torch.optim.SGD(model.parameters(), lr=0.1)
            opt = pl.Optimizer(sgd, model, "sync", role=role, evict=0.5)
            step = since = 0
            while not (role.rank == 0 and joined_again.is_set()):
                backward(opt, model, step, role.rank)
                if role.rank == 1 and step == 3:  # every number is compared in the fourth step
                    evicted.wait(LIMIT)
                if role.rank == 1 and step == 5:
                    break
                opt.step()
                step += 1
                since += step > 3  # the first of them waits for the eviction
                if since == 50:
                    evicted.set()
            if role.rank == 1:
                joined_again.set()
            opt.close()
            return step

        self.assertEqual(together(2, worker)[1], 5)


class Evaluators(unittest.TestCase):
    def test_version_while_closing(self) -> None:
        """A version that comes while the evaluator closes does not keep it waiting."""
        arrives = threading.Event()

        class Seat:
            def pull(self, seconds: float) -> bool:
                return arrives.wait(seconds) or False

            def close(self) -> None:
                pass

        nothing: Any = None
        seat: Any = Seat()
        evaluator = Evaluator(seat, nothing, nothing, nothing)
        closing = threading.Thread(target=evaluator.close, daemon=True)
        closing.start()
        while not evaluator._closing:
            time.sleep(0.001)
        arrives.set()
        closing.join(LIMIT)
        self.assertFalse(closing.is_alive())


def connections(server: Any) -> int:
    """How many descriptors of this process are connected to the server."""
    n = 0
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            if not stat.S_ISSOCK(os.fstat(fd).st_mode):
                continue
            with socket.socket(fileno=os.dup(fd)) as s:
                peer = s.getpeername()
        except OSError:
            continue
        n += (peer if isinstance(peer, str) else f"http://{peer[0]}:{peer[1]}") == server
    return n


class Children(unittest.TestCase):
    def test_connections(self) -> None:
        """A process that a worker has forked does not keep the worker's connections to the server:
        the server would not notice that the worker was killed."""
        checked = []

        def worker(role: pl.Role) -> None:
            model = net()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            opt = pl.Optimizer(optimizer, model, "sync", role=role, updates=3)
            if role.rank != 0 or not role.listen:
                checked.append(role.socket)
                self.assertGreater(connections(role.socket), 0)
                child = os.fork()
                if child == 0:
                    os._exit(connections(role.socket))
                self.assertEqual(os.waitpid(child, 0)[1], 0)
            to_the_end(opt)
            opt.close()

        together(1, worker)
        together(2, worker, far=True)
        self.assertEqual(len(checked), 2)


if __name__ == "__main__":
    unittest.main()
