"""Holds kazoo's Lock as it is told on standard input; the lines are described in interop/README.md.

Arguments: the servers' hosts, and the session's timeout in milliseconds. A lock's name is its path.
"""

import sys

from kazoo.client import KazooClient
from kazoo.exceptions import SessionExpiredError


def main(hosts, session):
    client = KazooClient(hosts=hosts, timeout=session)
    client.start()
    locks = {}

    def answer(command, path):
        lock = locks.setdefault(path, client.Lock(path))
        if command in ("try", "acquire"):
            return "ok" if lock.acquire(blocking=command == "acquire") else "busy"
        if command == "release":
            try:
                return "ok" if lock.release() else "lost"
            except SessionExpiredError:
                return "lost"
        return "error no such command"

    print("ready", flush=True)
    for line in sys.stdin:
        command, _, path = line.rstrip("\n").partition(" ")
        try:
            print(answer(command, path), flush=True)
        except Exception as error:
            print("error", repr(error), flush=True)
    client.stop()


main(sys.argv[1], int(sys.argv[2]) / 1000)
