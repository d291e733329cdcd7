"""Holds a lock by `etcdctl lock` as it is told on standard input; the lines are described in interop/README.md.

Arguments: the endpoint's URL, and the ttl of the lease in milliseconds, which etcdctl renews. The holder is the etcdctl
that is started for each lock; it dies with this driver.
"""

import os
import select
import signal
import subprocess
import sys

# etcdctl says nothing while it waits: one that has not got the lock by then is taken to wait.
TRY_SECONDS = 2


def main(url, lease):
    held = {}

    def lock(name, wait):
        etcdctl = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "etcdctl", "--endpoints", url, "lock", "--ttl", str(lease), name],
            stdout=subprocess.PIPE,
            env=dict(os.environ, ETCDCTL_API="3"),
        )
        # The key is printed when the lock is held.
        if not select.select([etcdctl.stdout], [], [], wait)[0]:
            etcdctl.send_signal(signal.SIGINT)
            etcdctl.wait()
            return "busy"
        key = etcdctl.stdout.readline()
        if not key:
            return f"error etcdctl ended with {etcdctl.wait()}"
        held[name] = etcdctl
        return "ok"

    def answer(command, name):
        if command == "try":
            return lock(name, TRY_SECONDS)
        if command == "acquire":
            return lock(name, None)
        if command == "release":
            etcdctl = held.pop(name)
            etcdctl.send_signal(signal.SIGINT)
            etcdctl.wait()
            return "ok"
        return "error no such command"

    print("ready", flush=True)
    for line in sys.stdin:
        command, _, name = line.rstrip("\n").partition(" ")
        try:
            print(answer(command, name), flush=True)
        except Exception as error:
            print("error", repr(error), flush=True)


main(sys.argv[1], int(sys.argv[2]) // 1000)
