"""Writes inputs to start from: python3 tests/fuzz/seeds.py FOLDER [PACELINE]

FOLDER gets one folder per target, and what is in tests/fuzz/corpus. If the program is given, it
writes a new recording and a new checkpoint to start from.
"""
import gzip
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from typing import Optional, Sequence, Union

corpus = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")


def put(target: str, name: str, data: Union[bytes, str], where: Optional[str] = None) -> None:
    folder = os.path.join(where or sys.argv[1], target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


def piece(data: bytes) -> bytes:
    return struct.pack("<H", len(data)) + data


def idx(dims: Sequence[int], data: bytes) -> bytes:
    return bytes([0, 0, 8, len(dims)]) + b"".join(struct.pack(">I", d) for d in dims) + data


def npy(descr: str, shape: str, data: bytes) -> bytes:
    head = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (descr, shape)
    head += " " * (63 - (10 + len(head)) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data


def made() -> None:
    pictures, labels = idx([2, 2, 2], bytes(range(8))), idx([2], b"\x01\x02")
    one = idx([1, 2, 2], bytes(4)), idx([1], b"\x00")
    put("idx", "plain", piece(pictures) + piece(labels) + piece(one[0]) + one[1])
    put(
        "idx",
        "gz",
        piece(gzip.compress(pictures, mtime=0)) + piece(labels) + piece(one[0]) + one[1],
    )
    put("cifar", "padded", b"".join(piece(bytes([i, 0])) for i in range(5)) + b"\x01\x00")
    put(
        "cifar",
        "gz",
        b"".join(piece(gzip.compress(bytes(3073), mtime=0)) for i in range(5))
        + gzip.compress(bytes(3073), mtime=0),
    )
    put("libsvm", "plain", "+1 1:0.5 3:-2e1\n-1 2:1 # comment\n\n+1 1:1\n")
    put("libsvm", "classes", "0 1:1\n1 2:1\n2 3:1\n")
    put("ratings", "plain", "1\t2\t3.5\t881250949\n4\t2\t1\t881250950\n")
    put("ratings", "movielens", "userId,movieId,rating,timestamp\n1,31,2.5,1260759144\n7,31,3,1\n")
    put("ratings", "dat", "1::1193::5::978300760\n2::661::3::978302109\n")
    put("csv", "names", "\0a,b,class\n1,2,x\n3,4,y\n5,6,x\n7,8,y\n")
    put("csv", "numbers", "\0001;2.5;0\n3;4;1\n5;6;0\n7;8;1\n")
    put("csv", "quoted", '\3"a, b",c,d\n"1",2,3\n4,5,6\n7,8,9\n1,1,1\n')
    x, y = npy("<f4", "(4, 2)", struct.pack("<8f", *range(8))), npy(
        "<i8", "(4,)", struct.pack("<4q", 0, 1, 0, 1)
    )
    put("npy", "plain", piece(y) + x)
    put(
        "npy",
        "bytes",
        piece(npy("|u1", "(4,)", b"\0\1\0\1"))
        + npy("<f8", "(4, 1)", struct.pack("<4d", 1, 2, 3, 4)),
    )
    put("script", "plain", "0.5 leave 1\n2 join 1 # back\n3 freeze 2 1e3\n")
    put("trace", "one", "0.5\n0.25 # fast\n1e-3\n")
    put("trace", "two", "1 0.5\n2 0.25\n1 0.75\n")
    put(
        "options",
        "plain",
        "program=0.1.0\nformat=3\nmethod=kasync:k=2\nlr=0.25\nworkers=4\nnet=latency=0.1\n"
        "lr-schedule=warmup:over=5+step:at=80,120\n",
    )
    put(
        "options",
        "columns",
        "program=0.1.0\nformat=3\n"
        "policy=ssp:s=3\nreduce=trimmed:f=1\noptim=adam:beta1=0.8\nseed=7\n",
    )
    for i, text in enumerate(
        [
            "kasync:k=2",
            "csv:file=a,target=b",
            "mlp:hidden=30",
            "kardam:f=1,same=infinite",
            "adam:beta1=0.8",
            "exp:mean=2",
            "label:alpha=0.5",
        ]
    ):
        put("spec", text.split(":")[0], bytes([i, 8]) + text.encode())
    put("delay", "laws", "3*const:t=0.2|exp:mean=2")
    put("delay", "pareto", "pareto:shape=2,scale=1")
    joins = bytes([1, 0, 9, 0, 17, 0])
    done = b"".join(bytes([2 | w << 3, 10]) for w in (0, 1, 2) * 6)
    for m in range(24):
        put("replay", "method-%02d" % m, bytes([m]) + joins + done + bytes([6, 1, 5, 200]))
        put(
            "resume",
            "method-%02d" % m,
            bytes([m, 1, 2, 3, 4]) + bytes([0] * 20 + [100, 5, 200] * 20),
        )
        put("state", "method-%02d" % m, bytes([m]) + bytes([0] * 20 + [100, 5, 200] * 20))
    put("events", "whole", joins + done + bytes([6, 1, 5, 200]))
    put(
        "events",
        "odd",
        joins + bytes([2 | 3 << 5, 10]) + bytes(8) + bytes([2 | 2 << 5, 1]) + bytes(4),
    )
    # of an answer: workers, half, n_more, spoilt numbers, then flags and descriptors
    put(
        "greeting",
        "worker",
        bytes([0, 0, 0, 0, 3 | 8, 0]) + struct.pack("<4H", 1, 8192 + 4096, 4160, 1 << 3),
    )
    put("greeting", "peers", bytes([2, 3, 2, 0, 3 | 8, 1, 0, 1 | 8]) + bytes(40))
    put("greeting", "short", bytes([0, 0, 0, 1, 8]) + bytes(8) + bytes([3, 0, 1, 2, 0]))
    put("hello", "worker", bytes([128, 133, 129, 0, 133, 133]))
    put(
        "hello",
        "evaluator",
        bytes([0, 5, 1, 1 | 2, 5, 8, 5, 9, 4, 1, 9]) + bytes(8) + bytes([5, 3]),
    )
    put(
        "hello",
        "said",
        bytes([4])
        + piece(b"\2checkpoint")
        + bytes([4])
        + piece(b"\3" + bytes(8))
        + bytes([4])
        + piece(b"\1"),
    )
    put(
        "bf16",
        "work",
        bytes([0, 0, 1, 7, 2, 0])
        + bytes(range(32))
        + bytes([3])
        + bytes(range(16))
        + bytes([6])
        + bytes(8)
        + bytes([7]),
    )
    put("bf16", "watch", bytes([0, 1, 5, 3, 7, 6, 5, 4, 7]))
    put(
        "request",
        "all",
        "\0lr 0.5\n\1checkpoint\n\3score 0 loss=1.5 test_accuracy=0.5 x=2\n\2end\n",
    )
    put(
        "mailbox",
        "work",
        bytes([2, 18, 34, 15, 0, 1, 16, 2, 3, 9])
        + bytes(8)
        + bytes([15, 19, 1])
        + bytes(8)
        + bytes([31, 10, 15, 11]),
    )
    put(
        "mailbox",
        "nonsense",
        bytes([2, 15, 8, 40, 0])
        + b"\xff" * 8
        + bytes([7])
        + b"\xff" * 8
        + bytes([15, 4])
        + b"\xee" * 8
        + bytes([5])
        + b"\x01" * 8
        + bytes([15]),
    )
    put(
        "checkpoint",
        "weights",
        piece(b'"},"minimum":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}') + bytes(16),
    )
    head = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    put("safetensors", "foreign", struct.pack("<Q", len(head)) + head + struct.pack("<2f", 1, 2))


def written(program: str) -> None:
    with tempfile.TemporaryDirectory() as t:

        def run(*words: str) -> None:
            subprocess.run(
                [
                    "paceline",
                    *words,
                    "--model",
                    "quadratic:dim=3",
                    "--workers",
                    "2",
                    "--updates",
                    "4",
                ],
                executable=program,
                cwd=t,
                check=True,
                stdout=subprocess.DEVNULL,
            )

        run("simulate", "--record", "a.rec")
        put("recording", "whole", open(t + "/a.rec", "rb").read(), corpus)
        run("train", "--spawn", "threads", "--checkpoint", "c")
        whole = open(t + "/c/latest", "rb").read()
        put("safetensors", "checkpoint", whole, corpus)
    n = struct.unpack("<Q", whole[:8])[0]
    front = 26 + 8 + 12 + 64  # up to the end of the hash; the run's identity is long and left out
    header = whole[8 + front : 8 + n]
    at, end = header.index(b',"run":'), header.index(b'},"')
    put("checkpoint", "whole", piece(header[:at] + header[end:]) + whole[8 + n :], corpus)


if len(sys.argv) > 2:
    written(os.path.abspath(sys.argv[2]))
made()
shutil.copytree(corpus, sys.argv[1], dirs_exist_ok=True)
