"""What clients ask of the controller itself."""

import asyncio
import dataclasses
import json
import pathlib

import pytest

import crossmesh
from crossmesh import _wire, aio, client, cluster, controller_results, errors, programs


def test_every_call_that_is_not_of_daemons_alone_is_one_of_clients():
    folder = pathlib.Path(client.__file__).parent
    made = "".join((folder / name).read_text(encoding="utf-8") for name in ("_requests.py", "client.py"))
    assert {name for name in _wire.methods() if f'"{name}"' not in made} == {
        "ControllerService/ReportStandby", "WorkerService/WorkerSession"}


@pytest.mark.parametrize(("kind", "message"), [
    (controller_results.ControllerInfo, "Controller"), (controller_results.ControllerStore, "ControllerStore"),
    (controller_results.StandbyController, "StandbyController")])
def test_values_have_all_fields_of_their_messages(kind, message):
    names = {field.name for field in dataclasses.fields(kind)}
    assert names == set(_wire.message(message).DESCRIPTOR.fields_by_name)


def test_a_controller_says_what_it_is_and_what_its_store_cannot():
    with crossmesh.local_cluster(workers=0) as running:
        running.client.meshes.create("m", "x=1 on a.0")
        controller = running.client.controller
        info = controller.get()
        assert (info.meshes, info.store.kind, info.standbys) == (1, "memory", ())
        assert info.version and info.start_time <= info.time
        assert f"unix:{running.folder}/controller.sock" in info.addresses
        lines = [json.loads(line) for line in controller.log_lines(1000)]
        assert lines and all("event" in line for line in lines)
        assert len(controller.log_lines(1)) == 1
        for call in (controller.back_up_store, controller.verify_store, controller.release_store_reserve):
            with pytest.raises(errors.FailedPreconditionError):
                call()


def test_a_store_in_a_folder_is_verified_and_backed_up(tmp_path):
    async def use(address):
        async with aio.connect(address) as client:
            info = await client.controller.get()
            return info, await client.controller.verify_store()

    address = f"unix:{tmp_path / 'c'}"
    daemon = cluster._Daemon(tmp_path, "controller", [
        str(programs.path("crossmesh-controller")), "--listen", address, "--metrics-listen", "127.0.0.1:0",
        "--state-dir", str(tmp_path / "state"), "--backup-dir", str(tmp_path / "backups")])
    try:
        daemon.await_ready()
        with crossmesh.connect(address) as client:
            client.meshes.create("m", "x=1 on a.0")
            assert client.controller.verify_store() > 0
            assert pathlib.Path(client.controller.back_up_store()).stat().st_size > 0
            client.controller.release_store_reserve()
        info, revision = asyncio.run(use(address))
        assert info.store.kind == "sqlite" and info.store.database_bytes > 0 and info.store.backup_time is not None
        assert revision >= 1
    finally:
        daemon.ask_to_end()
        daemon.end()
