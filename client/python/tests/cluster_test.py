"""Clusters of this machine: they end, whatever ends the process that has them."""

import os
import pathlib
import select
import signal
import subprocess
import sys

import pytest

import crossmesh
from crossmesh import errors


def _is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_all_daemons_and_the_folder_are_gone_after_the_block():
    with crossmesh.local_cluster(workers=2, devices=2) as cluster:
        assert [worker.devices for worker in cluster.client.workers.list()] == ["node-0.0-1", "node-1.0-1"]
        assert cluster.devices(1) == ["node-1.0", "node-1.1"]
        pids, folder = cluster.pids, cluster.folder
        assert len(pids) == 3 and all(map(_is_alive, pids))
    assert not any(map(_is_alive, pids))
    assert not folder.exists()


def test_after_an_exception_the_logs_are_kept():
    with pytest.raises(ZeroDivisionError) as caught, crossmesh.local_cluster(workers=1) as cluster:
        pids, folder = cluster.pids, cluster.folder
        raise ZeroDivisionError
    assert not any(map(_is_alive, pids))
    assert (folder / "controller.log").stat().st_size > 0
    if sys.version_info >= (3, 11):
        assert str(folder) in caught.value.__notes__[0]


def test_a_cluster_without_a_block_runs_until_it_is_stopped():
    cluster = crossmesh.local_cluster(workers=1)
    pids, folder = cluster.pids, cluster.folder
    assert [worker.name for worker in cluster.client.workers.list()] == ["node-0"]
    cluster.stop()
    assert not any(map(_is_alive, pids)) and not folder.exists()
    cluster.stop()
    with pytest.raises(errors.FailedPreconditionError, match="found one that was stopped"):
        _ = cluster.client


def test_a_cluster_ends_with_the_last_reference_to_it():
    cluster = crossmesh.local_cluster(workers=1)
    pids, folder = cluster.pids, cluster.folder
    del cluster
    assert not any(map(_is_alive, pids)) and not folder.exists()


def test_a_cluster_without_a_block_ends_with_its_interpreter():
    script = "import crossmesh\ncluster = crossmesh.local_cluster(workers=1)\nprint(cluster.folder, *cluster.pids)"
    done = subprocess.run([sys.executable, "-X", "dev", "-c", script], capture_output=True, text=True, check=True)
    folder, *pids = done.stdout.split()
    assert not any(map(_is_alive, pids)) and not os.path.exists(folder)
    assert done.stderr == ""


def test_ctrl_c_is_for_the_process_and_not_for_its_daemons():
    with crossmesh.local_cluster(workers=1) as cluster:
        assert all(os.getpgid(pid) != os.getpgrp() for pid in cluster.pids)


def test_no_code_runs_in_a_fork_of_a_process_that_may_have_threads():
    script = ("import os\nos.register_at_fork(before=lambda: print('forked'))\nimport crossmesh\n"
              "with crossmesh.local_cluster(workers=1) as cluster:\n    print(len(cluster.pids))")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "2\n"


def test_daemons_end_with_a_process_that_is_killed():
    script = ("import crossmesh, sys\nwith crossmesh.local_cluster(workers=1) as cluster:\n"
              "    print(*cluster.pids, flush=True)\n    sys.stdin.read()")
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as process:
        pids = [int(pid) for pid in process.stdout.readline().split()]
        watched = [os.pidfd_open(pid) for pid in pids]
        process.send_signal(signal.SIGKILL)
        process.wait()
    for descriptor in watched:  # readable once the process has ended
        assert select.select([descriptor], [], [], 20)[0]
        os.close(descriptor)


def test_a_daemon_that_does_not_start_is_told_with_its_log(tmp_path, monkeypatch):
    for name in ("crossmesh-controller", "crossmesh-worker"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\necho no such luck\nexit 70\n")
        program.chmod(0o755)
    monkeypatch.setenv("CROSSMESH_PROGRAMS", str(tmp_path))
    with pytest.raises(errors.UnavailableError, match="no such luck"), crossmesh.local_cluster(workers=1):
        pass


def test_a_number_of_workers_that_cannot_be_is_refused():
    with pytest.raises(errors.InvalidArgumentError, match="found -1 of 1"), crossmesh.local_cluster(workers=-1):
        pass
