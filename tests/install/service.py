"""A daemon on a bare machine, run as systemd would run its unit."""

import os
import signal
import socket
import subprocess
import time

import deployed
from bare_machine import BareMachine

READY_WITHIN_S = 60
STOPPED_WITHIN_S = 60


class Service:
    """Runs from the moment that it is ready, until stop()."""

    def __init__(self, machine: BareMachine, name: str):
        self.name = name
        unit = deployed.settings(machine.path(f"/usr/lib/systemd/system/{name}.service"))
        user = machine.user(unit["User"][0])
        for setting, parent in (("RuntimeDirectory", "/run"), ("StateDirectory", "/var/lib")):
            for folder in unit.get(setting, []):
                path = machine.path(f"{parent}/{folder}")
                path.mkdir(exist_ok=True)
                path.chmod(int(unit.get(f"{setting}Mode", ["0755"])[0], 8))
                os.chown(path, int(user["uid"]), int(user["gid"]))

        specifiers = {"%t": "/run", "%S": "/var/lib", "%l": machine.host}
        defaults = machine.path(unit["EnvironmentFile"][0]).read_text()
        variables = deployed.own_environment(unit, specifiers) | deployed.environment(defaults)
        command = deployed.started(unit, variables, specifiers)

        # A service of Type=notify, which may have more to say later.
        notified = f"/run/{name}.notify"
        machine.path(notified).unlink(missing_ok=True)  # of an earlier start
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.manager.bind(str(machine.path(notified)))
        machine.path(notified).chmod(0o777)
        self.manager.settimeout(1)
        self.log = machine.path(f"/root/{name}.log")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                machine.command(*command, user=unit["User"][0], NOTIFY_SOCKET=notified), stdout=log, stderr=log)
        state = self.notice()
        if b"READY=1" not in state.split(b"\n"):
            self.kill()
            raise AssertionError(f"{name}: expected READY=1, found {state!r}; its log:\n{self.log.read_text()}")

    def notice(self) -> bytes:
        """What it tells its manager; nothing when it ends, or takes too long."""
        until = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < until and self.process.poll() is None:
            try:
                return self.manager.recv(4096)
            except TimeoutError:
                continue
        return b""

    def stop(self) -> int:
        """Its exit status."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(STOPPED_WITHIN_S)
        self.manager.close()
        return status

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.manager.close()
