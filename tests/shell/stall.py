"""A line that stops half-way: stall.py HOST:PORT up|down BYTES|signal

Connections to the port that it prints go to HOST:PORT. One of them stalls for ever after that many
bytes have gone up (to HOST:PORT) or down, or half-way through the next ones after SIGUSR1. It says
"stalled" then. All other connections go on."""

import signal
import socket
import sys
import threading
from typing import Any

(HOST, PORT), WAY = sys.argv[1].split(":"), sys.argv[2]
lock, never = threading.Lock(), threading.Event()
left = None if sys.argv[3] == "signal" else int(sys.argv[3])  # bytes; None: it does not stall
half = False


def stop(*_: Any) -> None:
    global half
    half = True


def may(way: str, n: int) -> int:
    """How many of n bytes may pass."""
    global left, half
    with lock:
        if way != WAY or (left is None and not half):
            return n
        passes = n // 2 if half or left is None else min(n, left)
        left = None if half or left is None or passes < n else left - passes
        half = False
        return passes


def carry(way: str, a: socket.socket, b: socket.socket) -> None:
    try:
        while data := a.recv(65536):
            n = may(way, len(data))
            b.sendall(data[:n])
            if n < len(data):
                print("stalled", flush=True)
                never.wait()
    except OSError:
        pass
    for s in (a, b):
        try:
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


signal.signal(signal.SIGUSR1, stop)
server = socket.create_server((HOST, 0))
print("port", server.getsockname()[1], flush=True)
while True:
    a = server.accept()[0]
    try:
        b = socket.create_connection((HOST, int(PORT)))
    except OSError:
        a.close()
        continue
    threading.Thread(target=carry, args=("up", a, b), daemon=True).start()
    threading.Thread(target=carry, args=("down", b, a), daemon=True).start()
