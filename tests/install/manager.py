"""Stands for systemd on a bare machine: does what maintainer scripts and administrators ask of it there."""

import json
import signal
import socketserver
import threading

import deployed
from bare_machine import BareMachine
from service import Service

# What is asked goes to the test's process, which runs the daemons.
PROGRAM = """#!/usr/bin/python3
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as manager:
    manager.connect("/run/manager.sock")
    manager.sendall(json.dumps([os.path.basename(sys.argv[0]), *sys.argv[1:]]).encode() + b"\\n")
    status, said = json.loads(manager.makefile().read())
print(said, end="")
sys.exit(status)
"""


class Asked(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        words = json.loads(self.rfile.readline())
        self.wfile.write(json.dumps(self.server.manager.answer(words)).encode())


class Manager:
    """Of one machine. Daemons that it has started end with stop()."""

    def __init__(self, machine: BareMachine):
        self.machine = machine
        self.running: dict[str, Service] = {}
        for name in ("systemctl", "journalctl"):
            path = machine.path(f"/usr/bin/{name}")
            path.write_text(PROGRAM)
            path.chmod(0o755)
        # By which maintainer scripts know that systemd runs.
        machine.path("/run/systemd/system").mkdir(parents=True)
        self.server = socketserver.ThreadingUnixStreamServer(str(machine.path("/run/manager.sock")), Asked)
        self.server.manager = self
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def stop(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
        for service in self.running.values():
            service.kill()

    def answer(self, words: list[str]) -> tuple[int, str]:
        """The exit status, and what is printed."""
        program, *arguments = words
        if program == "journalctl":
            unit = deployed.flag(arguments, "--unit")
            return 0, self.machine.path(f"/root/{unit}.log").read_text()
        verb, *units = (word for word in arguments if not word.startswith("-"))
        number = signal.Signals[f"SIG{deployed.flag(arguments, '--signal') or 'TERM'}"]
        try:
            answers = [self.act(verb, unit.removesuffix(".service"), number) for unit in units]
        except (AssertionError, ValueError, OSError) as error:
            return 1, f"{error}\n"
        return max((status for status, _ in answers), default=0), "".join(said for _, said in answers)

    def act(self, verb: str, unit: str, number: int) -> tuple[int, str]:
        is_active = unit in self.running and self.running[unit].process.poll() is None
        if verb == "is-enabled":
            return 0, "enabled\n"
        if verb in ("is-active", "status"):
            return (0, f"{unit}: active\n") if is_active else (3, f"{unit}: inactive\n")
        if verb == "kill":
            self.running[unit].process.send_signal(number)
            return 0, ""
        if verb not in ("restart", "start", "stop"):
            raise ValueError(f"no such stand-in for systemctl {verb}")
        if is_active and verb != "start":
            self.running.pop(unit).stop()
        if verb == "restart" or (verb == "start" and not is_active):
            if unit in self.running:
                self.running[unit].kill()  # it has ended by itself
            self.running[unit] = Service(self.machine, unit)
        return 0, ""
