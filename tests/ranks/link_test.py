#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two ranks in two network namespaces, and the link between them cut: both must end, and name each other.

    link_test.py PROGRAM        needs root, ip and Open MPI's mpirun; says "SKIPPED: " without them
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TIMEOUT = 2  # seconds, of the run
CONFIG = {
    "name": "link", "output_dir": "r", "device": "cpu", "model": {"type": "Linear", "out_features": "auto"},
    "loss": "CrossEntropyLoss",
    "optimizer": {"type": "SGD", "lr": 0.1},
    "data": {"train": {"type": "Random", "num_batches": 3, "input_shape": [4], "classes": 3}, "loader": {"batch_size": 8}},
    "train": {"epochs": 100000000}, "checkpoint": {"every": "20 steps", "keep_last": 2}, "distributed": {"timeout_s": TIMEOUT},
}


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def ranks_of(folder):
    """The processes of the program that run in this folder."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.readlink(entry / "cwd") == folder and os.readlink(entry / "exe").endswith("/halfstep"):
                found.append(int(entry.name))
        except OSError:
            pass  # gone, or not ours
    return found


def wait_for(what, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.05)
    return False


def cut(program, folder, a, b):
    agent = pathlib.Path(folder, "agent")
    agent.write_text(f'#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done\nshift\nexec ip netns exec {b} bash -c "$*"\n')
    agent.chmod(0o755)
    pathlib.Path(folder, "c.json").write_text(json.dumps(CONFIG))
    net = "10.213.77.0/24"
    with open(pathlib.Path(folder, "log"), "w+", encoding="utf-8") as log:
        job = subprocess.Popen(["ip", "netns", "exec", a, "mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
                                "--wdir", folder,
                                "--host", "10.213.77.1:1,10.213.77.2:1", "--mca", "plm_rsh_agent", str(agent), "--mca", "btl",
                                "tcp,self",
                                "--mca", "btl_tcp_if_include", net, "--mca", "oob_tcp_if_include", net, "-np", "2", program,
                                "train",
                                "c.json", "--quiet", "--threads", "1"], cwd=folder, stdout=log, stderr=subprocess.STDOUT,
                                start_new_session=True)
        try:
            if not wait_for(lambda: pathlib.Path(folder, "r/latest").exists() and len(ranks_of(folder)) == 2, 20):
                return f"the ranks did not begin: {pathlib.Path(folder, 'log').read_text()}"
            ip("-n", b, "link", "set", b, "down")
            if not wait_for(lambda: not ranks_of(folder), TIMEOUT + 4):
                return f"ranks {ranks_of(folder)} continue without a link"
            text = pathlib.Path(folder, "log").read_text()
            expected = f"did not end within {TIMEOUT} s: rank 1 does not answer"
            return None if expected in text else f"rank 0 did not say that it {expected}: {text}"
        finally:
            for process in ranks_of(folder):
                os.kill(process, signal.SIGKILL)
            os.killpg(job.pid, signal.SIGKILL)  # mpirun itself waits for the other side for ever
            job.wait()


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("mpirun"):
        print("SKIPPED: needs root, ip and mpirun")
        return 0
    a, b = f"hs{os.getpid()}a", f"hs{os.getpid()}b"  # also the names of the link's ends
    try:
        try:
            for name in (a, b):
                ip("netns", "add", name)
            ip("link", "add", a, "type", "veth", "peer", "name", b)
            for name, address in ((a, "10.213.77.1/24"), (b, "10.213.77.2/24")):
                ip("link", "set", name, "netns", name)
                ip("-n", name, "addr", "add", address, "dev", name)
                ip("-n", name, "link", "set", name, "up")
                ip("-n", name, "link", "set", "lo", "up")
        except subprocess.CalledProcessError:
            print("SKIPPED: network namespaces cannot be made here")
            return 0
        with tempfile.TemporaryDirectory() as folder:
            fault = cut(program, os.path.realpath(folder), a, b)
        print(fault or "ok: both ranks ended, and the one that was cut off was named")
        return 1 if fault else 0
    finally:
        for name in (a, b):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


if __name__ == "__main__":
    sys.exit(main())
