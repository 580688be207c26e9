"""Where the processes of a job are: what launchers say about machines, the addresses of rank 0, and
the names of runs."""

import os
import shutil
import tempfile
import unittest
import unittest.mock

import torch

import paceline
import paceline.torch as pl
from paceline import _keys, _roles
from workers import net, roles

SGD = torch.optim.SGD


class Machines(unittest.TestCase):
    def test_two_machines(self) -> None:
        """Launchers that started processes on two machines, and MASTER_ADDR of another one."""
        slurm = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4", "SLURM_JOB_ID": "7"}
        by_hand = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "29500"}
        for env in (
            dict(slurm, SLURM_STEP_TASKS_PER_NODE="2(x2)"),
            dict(slurm, SLURM_STEP_TASKS_PER_NODE="3,1"),
            dict(slurm, SLURM_STEP_NUM_NODES="2"),
            dict(slurm, SLURM_NNODES="2"),
            {"PMI_RANK": "1", "PMI_SIZE": "4", "SLURM_NNODES": "2"},
        ):
            with self.assertRaisesRegex(paceline.UsageError, "MASTER_ADDR", msg=env):
                _roles.find(env)
        with self.assertRaisesRegex(paceline.UsageError, "PACELINE_KEYS"):
            _roles.find({"PMI_RANK": "1", "PMI_SIZE": "4", "MASTER_ADDR": "a", "SLURM_NNODES": "2"})
        far = dict(by_hand, MASTER_ADDR="192.0.2.1")
        store = ("192.0.2.1", 29502, True, "paceline-29500")
        self.assertEqual(_roles.find(far).channel, store)
        self.assertIsNone(_roles.find(dict(far, PACELINE_KEYS="keys")).channel)
        far["TORCHELASTIC_USE_AGENT_STORE"] = "True"
        channel = _roles.find(far).channel
        assert isinstance(channel, tuple)
        self.assertEqual(channel[1:3], (29500, False))
        slurm_far = dict(slurm, SLURM_NNODES="2", MASTER_ADDR="192.0.2.1", PWD="/shared/me")
        first = dict(slurm, SLURM_NNODES="2", SLURM_PROCID="0")
        for nodes, host in (("a[2-4]-b[07,9],c", "a2-b07"), ("lab3,lab4", "lab3"), ("x", "x")):
            self.assertEqual(_roles.find(dict(first, SLURM_STEP_NODELIST=nodes)).host, host)
        self.assertEqual(_roles.find(slurm_far).channel, "/shared/me/.paceline-keys-7")
        for env in (
            dict(slurm, SLURM_STEP_TASKS_PER_NODE="4", SLURM_NNODES="1"),
            dict(slurm, SLURM_STEP_TASKS_PER_NODE="4", SLURM_STEP_NUM_NODES="1", SLURM_NNODES="2"),
            dict(by_hand, MASTER_ADDR="127.0.0.1"),
            dict(by_hand, MASTER_ADDR="localhost"),
            by_hand,
        ):
            self.assertEqual(_roles.find(env).rank, 1)

    def test_addresses_of_rank_0(self) -> None:
        """Under Open MPI they are in a folder that only this user can read."""
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        env = {f"OMPI_COMM_WORLD_{k}": v for k, v in (("SIZE", "4"), ("LOCAL_SIZE", "2"))}
        env.update(PMIX_NAMESPACE="9", PWD=folder, PACELINE_PORT="7000")
        with unittest.mock.patch("paceline._roles._addresses", lambda: "192.0.2.1,203.0.113.1"):
            first = _roles.find(dict(env, OMPI_COMM_WORLD_RANK="0"))
            role = _roles.find(dict(env, OMPI_COMM_WORLD_RANK="1"))
        self.assertEqual((first.host, first.listen), ("192.0.2.1,203.0.113.1", "0.0.0.0:7000"))
        self.assertEqual(first.channel, role.channel)
        keys = os.path.join(folder, ".paceline-keys-9")
        os.mkdir(keys, 0o700)

        def found(addresses: str, role: pl.Role = role) -> str:
            with open(os.path.join(keys, "addresses"), "w", encoding="ascii") as f:
                f.write(addresses)
            return _keys.found(role).socket

        # 192.0.2.1 and 203.0.113.1 are nobody's
        self.assertEqual(found("192.0.2.1,127.0.0.1"), "https://192.0.2.1:7000")
        self.assertEqual(found("192.0.2.1,203.0.113.1"), "https://192.0.2.1:7000,203.0.113.1:7000")
        self.assertEqual(found("127.0.0.1"), role.socket)
        with unittest.mock.patch("paceline._roles._made", {}):
            second = [_roles.next_run(role) for _ in range(2)][1]
        self.assertEqual(found("192.0.2.1", second), "https://192.0.2.1:7002")
        for bad in ("", "example.com", "192.0.2.1:80", "192.0.2.1\n"):
            with self.assertRaisesRegex(paceline.RunError, "has no addresses.*MASTER_ADDR"):
                found(bad)
        os.chmod(keys, 0o750)
        with self.assertRaisesRegex(paceline.UsageError, "only this user can read"):
            found("192.0.2.1")

    def test_names_of_runs(self) -> None:
        """All ranks of a job have the same name for a run, on all machines; other jobs have others."""
        slurm = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_JOB_ID": "7"}
        slurm.update(SLURM_NNODES="2", MASTER_ADDR="192.0.2.1", PACELINE_KEYS="keys")
        by_hand = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "29500"}
        for env, rank, names, change in (
            (slurm, "SLURM_PROCID", ["srun-7-of-2.1", "srun-7-of-2.2"], {"SLURM_JOB_ID": "8"}),
            (
                by_hand,
                "RANK",
                ["torchrun-29500-of-2.1", "torchrun-29500-of-2.2"],
                {"WORLD_SIZE": "3"},
            ),
        ):
            with unittest.mock.patch("paceline._roles._made", {}):
                for r in "01":
                    role = _roles.find(dict(env, **{rank: r}))
                    self.assertEqual([_roles.next_run(role).job for _ in range(2)], names)
                other = _roles.next_run(_roles.find(dict(env, **change)))
                self.assertNotIn(other.job, names)

    def test_nobody_there(self) -> None:
        """The error after the time limit says what to look for."""
        role = roles(2)[1]
        with unittest.mock.patch("paceline.torch._session.WAIT", 0.5):
            with self.assertRaisesRegex(paceline.FileError, "rank 0 .* this machine"):
                model = net()
                pl.Optimizer(SGD(model.parameters(), lr=0.1), model, role=role)


if __name__ == "__main__":
    unittest.main()
