"""Runs a command on a terminal of its own until it asks, and answers.

Usage: ask.py MEANWHILE ANSWER PROGRAM ARGUMENTS... When the question is there, MEANWHILE, a command of a shell, is run,
and ANSWER is typed. Prints what the terminal showed, and ends as the program does.
"""

import os
import pty
import select
import subprocess
import sys
import time

MEANWHILE, ANSWER, *COMMAND = sys.argv[1:]
# Nothing here takes a second where nothing else runs.
WITHIN = 60
pid, terminal = pty.fork()
if pid == 0:
    os.execv(COMMAND[0], COMMAND)
seen, answered, end = b"", False, time.monotonic() + WITHIN
while True:
    assert time.monotonic() < end, f"it does not end: {seen!r}"
    if select.select([terminal], [], [], 0.05)[0]:
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:
            # The other side is closed.
            break
        if not part:
            break
        seen += part
    if not answered and b"[y/N] " in seen:
        subprocess.run(["sh", "-c", MEANWHILE], check=True)
        os.write(terminal, ANSWER.encode())
        answered = True
_, status = os.waitpid(pid, 0)
print(seen.decode())
sys.exit(os.waitstatus_to_exitcode(status) if answered else 9)
