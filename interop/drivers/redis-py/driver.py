"""Holds redis-py's Lock as it is told on standard input; the lines are described in interop/README.md.

Arguments: the server's URL, and the timeout in milliseconds, which nobody renews.
"""

import sys

import redis
from redis.exceptions import LockError


def main(url, lease):
    client = redis.Redis.from_url(url)
    client.ping()
    held = {}

    def answer(command, name):
        if command in ("try", "acquire"):
            lock = client.lock(name, timeout=lease)
            if not lock.acquire(blocking=command == "acquire"):
                return "busy"
            held[name] = lock
            return "ok"
        if command == "release":
            try:
                held.pop(name).release()
                return "ok"
            except LockError:
                return "lost"
        return "error no such command"

    print("ready", flush=True)
    for line in sys.stdin:
        command, _, name = line.rstrip("\n").partition(" ")
        try:
            print(answer(command, name), flush=True)
        except Exception as error:
            print("error", repr(error), flush=True)


main(sys.argv[1], int(sys.argv[2]) / 1000)
