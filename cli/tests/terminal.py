"""Runs a command that draws on a terminal, in a terminal of its own, and sees what it does with it.

Usage: terminal.py PROGRAM ENDPOINT. Each case starts `top` or a list with --watch as the leader of a session whose
terminal is a pseudo terminal, so that keys, sizes, job control and a closed window are the kernel's own. What is asked
of a case is asked of bytes on the screen and of the terminal's modes, waited for and never slept for.
"""

import fcntl
import os
import pty
import re
import select
import signal
import socket
import struct
import sys
import termios
import threading
import time

PROGRAM, ENDPOINT = sys.argv[1:3]
COMMANDS = {"top": ["top", "--all", "--interval", "100ms"],
            "watch": ["group", "list", "--watch", "--interval", "100ms"]}
# Nothing here takes a second where nothing else runs.
WITHIN = 60
ENTER, LEAVE, HIDE, SHOW = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25l", b"\x1b[?25h"
BEGIN, END = b"\x1b[?2026h", b"\x1b[?2026l"
SEQUENCE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


class Run:
    """A command on its terminal."""

    def __init__(self, kind, columns, rows=24, endpoint=ENDPOINT):
        self.keys = kind == "top"
        self.seen, self.status = b"", None
        master, slave = pty.openpty()
        self.master, self.slave = master, slave
        self.size(columns, rows)
        self.modes = termios.tcgetattr(slave)
        # The child waits for a byte, so that its terminal is ready before it looks at it.
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
            for number in range(3):
                os.dup2(slave, number)
            os.close(master)
            os.environ["TERM"] = "xterm-256color"
            os.execv(PROGRAM, [PROGRAM, "--endpoint", endpoint, *COMMANDS[kind]])

    def size(self, columns, rows=24):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys):
        os.write(self.master, keys)

    def kill(self, number):
        os.kill(self.pid, number)

    def read(self):
        """Takes what is there, or waits a moment for more. False when there is no terminal any more."""
        ready, _, _ = select.select([self.master], [], [], 0.05)
        if ready:
            try:
                self.seen += os.read(self.master, 1 << 16)
            except OSError:
                return False
        return True

    def until(self, what, holds):
        end = time.monotonic() + WITHIN
        while not holds():
            assert time.monotonic() < end, f"{what}: not seen; the end of what was: {self.seen[-2000:]!r}"
            self.read()

    def frames(self):
        """Whole pictures since the last forget()."""
        return [part.split(END)[0] for part in self.seen.split(BEGIN)[1:] if END in part]

    def forget(self):
        self.seen = b""

    def drawn(self, what):
        """Waits for a picture that began after now."""
        self.forget()
        self.until(what, lambda: len(self.frames()) > 1)

    def is_raw(self):
        return not termios.tcgetattr(self.slave)[3] & termios.ICANON

    def taken(self, what):
        self.until(what, lambda: ENTER in self.seen and HIDE in self.seen and self.frames())
        assert self.is_raw() == self.keys, what

    def given_back(self, what):
        leave, show = self.seen.rfind(LEAVE), self.seen.rfind(SHOW)
        assert leave > self.seen.rfind(ENTER) and show > self.seen.rfind(HIDE), f"{what}: {self.seen[-300:]!r}"
        assert termios.tcgetattr(self.slave) == self.modes, f"{what}: the modes of the terminal are others"

    def stopped(self, what):
        def is_stopped():
            pid, status = os.waitpid(self.pid, os.WUNTRACED | os.WNOHANG)
            assert pid == 0 or os.WIFSTOPPED(status), f"{what}: it ended: {status}"
            return pid != 0
        self.until(what, is_stopped)

    def ended(self, what, code=0):
        def has_ended():
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid != 0:
                self.status = status
            return pid != 0
        self.until(what, has_ended)
        while select.select([self.master], [], [], 0)[0] and self.read():
            pass
        assert os.waitstatus_to_exitcode(self.status) == code, f"{what}: {self.status}"

    def close(self):
        for number in {self.master, self.slave}:
            os.close(number)


class Way:
    """A way to the controller that is cut and mended. Its port stays its own: what comes while it is cut is closed."""

    def __init__(self):
        self.open, self.ends = True, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        host, port = ENDPOINT.removeprefix("http://").rsplit(":", 1)
        while True:
            near, _ = self.listener.accept()
            if not self.open:
                near.close()
                continue
            far = socket.create_connection((host, int(port)))
            self.ends += [near, far]
            if not self.open:
                # Since a moment ago.
                self.cut()
            for ends in ((near, far), (far, near)):
                threading.Thread(target=self.carry, args=ends, daemon=True).start()

    @staticmethod
    def carry(source, sink):
        try:
            while some := source.recv(1 << 16):
                sink.sendall(some)
        except OSError:
            pass

    def cut(self):
        self.open = False
        for end in self.ends:
            # Also for a thread that waits for it; the other side may be gone.
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def mend(self):
        self.open = True


def widths(frame):
    """Columns of each row of a picture; what it shows is ASCII but for marks of one column each."""
    rows = re.split(rb"\x1b\[[0-9;]*H", frame)
    return [len(SEQUENCE.sub(b"", row).decode().rstrip()) for row in rows]


def fits(kind, columns):
    run = Run(kind, columns)
    what = f"{kind} at {columns} columns"
    run.taken(what)
    run.drawn(what)
    for frame in run.frames():
        assert max(widths(frame)) <= columns, f"{what}: {widths(frame)} {frame!r}"
        assert b"shop" in frame, f"{what}: {frame!r}"
    end(run, what)


def resizes(kind):
    run = Run(kind, 120)
    what = f"{kind}, narrower and wider"
    run.taken(what)
    for columns in (60, 200, 80):
        run.size(columns)
        run.until(what, lambda: run.frames() and max(widths(run.frames()[-1])) <= columns)
        run.drawn(what)
        assert max(widths(run.frames()[-1])) <= columns, what
    run.size(80, 5)
    run.until(what, lambda: run.frames() and len(widths(run.frames()[-1])) <= 5 + 1)
    end(run, what)


def end(run, what):
    run.type(b"q" if run.keys else b"\x03")
    run.ended(what)
    run.given_back(what)
    run.close()


def ends_by(kind, number):
    run = Run(kind, 80)
    what = f"{kind}, {signal.Signals(number).name}"
    run.taken(what)
    run.kill(number)
    run.ended(what)
    run.given_back(what)
    run.close()


def suspends(kind, how):
    run = Run(kind, 80)
    what = f"{kind}, {how}"
    run.taken(what)
    for _ in range(2):
        run.forget()
        if how == "Ctrl-Z":
            run.type(b"\x1a")
        else:
            run.kill(signal.SIGTSTP if how == "SIGTSTP" else signal.SIGSTOP)
        run.stopped(what)
        while select.select([run.master], [], [], 0)[0]:
            run.read()
        if how == "SIGSTOP":
            # Nobody can hear this one; what a shell does then is its own.
            termios.tcsetattr(run.slave, termios.TCSANOW, run.modes)
        else:
            run.given_back(what)
        run.forget()
        run.kill(signal.SIGCONT)
        run.taken(what)
        run.drawn(what)
    end(run, what)


def goes_on_when_the_controller_is_back(kind):
    way = Way()
    run = Run(kind, 120, endpoint=way.endpoint)
    what = f"{kind}, a controller that is away"
    run.taken(what)
    says = lambda: bool(run.frames()) and b"trying again" in run.frames()[-1].lower()
    for _ in range(2):
        way.cut()
        run.until(what, says)
        way.mend()
        run.forget()
        run.until(f"{what} and back", lambda: bool(run.frames()) and not says() and b"shop" in run.frames()[-1])
    end(run, what)


def loses_its_terminal(kind):
    run = Run(kind, 80)
    what = f"{kind}, a closed terminal"
    run.taken(what)
    os.close(run.slave)
    os.close(run.master)
    end_by = time.monotonic() + WITHIN
    while os.waitpid(run.pid, os.WNOHANG)[0] == 0:
        assert time.monotonic() < end_by, f"{what}: it goes on"


for kind in COMMANDS:
    for columns in (60, 80, 120, 200):
        fits(kind, columns)
    resizes(kind)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        ends_by(kind, number)
    for how in ("SIGTSTP", "SIGSTOP"):
        suspends(kind, how)
    goes_on_when_the_controller_is_back(kind)
    loses_its_terminal(kind)
# In raw mode the key is no signal; without, an orphan's terminal sends none.
suspends("top", "Ctrl-Z")
print("all is well")
