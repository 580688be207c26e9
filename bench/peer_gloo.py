"""The peer of bench_run (b): `peer_gloo.py P N` prints the median milliseconds of Gloo's all-reduce
of N floats between P processes, as PyTorch DDP does it on CPUs."""
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

REPEATS = 15


def run(rank: int, size: int, n: int, port: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=size)
    v = torch.zeros(n)
    times = []
    for i in range(-2, REPEATS):
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(v)
        if i >= 0:
            times.append(time.perf_counter() - start)
    if rank == 0:
        print("%.3f" % (1e3 * sorted(times)[REPEATS // 2]))
    dist.destroy_process_group()


if __name__ == "__main__":
    processes, floats = int(sys.argv[1]), int(sys.argv[2])
    mp.spawn(run, args=(processes, floats, 20000 + os.getpid() % 20000), nprocs=processes)
