"""Two sandboxes at once: a number that one knows does not cross to the other by what the kernel shares."""

from __future__ import annotations

import secrets
import textwrap
import threading

import pytest

from whetstone.sandbox import RunLimits, Sandbox, Tier
from whetstone.sandbox.script import script_job
from whetstone.sandbox.streams import link_to_program

pytestmark = pytest.mark.process

BITS = 40
LIMITS = RunLimits(cpu_s=20.0, memory_bytes=256 << 20, output_bytes=1 << 20, wall_s=120.0)
COMMON = (
    f"BITS = {BITS}\n"
    + """
import array, contextlib, ctypes, errno, fcntl, glob, mmap, os, socket, struct, sys
FILE = os.__file__
FOLDER = os.path.dirname(FILE)
LIBRARY = sorted(glob.glob(FOLDER + "/*.py"))
C = ctypes.CDLL(None, use_errno=True)
ONES = lambda number: [bit for bit in range(BITS) if number >> bit & 1]

def record(fd, command, kind, bit):
    return fcntl.fcntl(fd, command, struct.pack("hhqqi4x", kind, 0, 100 + bit, 1, 0))

def marked(command, bit):
    found = record(os.open(FILE, os.O_RDONLY), command, fcntl.F_WRLCK, bit)
    return struct.unpack("h", found[:2])[0] != fcntl.F_UNLCK

def opened(path): return os.open(path, os.O_RDONLY)
"""
)
# How the one sends ``number`` and holds it, and how the other finds whether ``bit`` is set.
CHANNELS: dict[str, tuple[str, str]] = {
    "read locks on a library file": (
        "fd = opened(FILE)\nfor bit in ONES(number): record(fd, fcntl.F_SETLK, fcntl.F_RDLCK, bit)",
        "marked(fcntl.F_GETLK, bit)",
    ),
    "write locks on a device": (
        "fd = os.open('/dev/null', os.O_RDWR)\n"
        "for bit in ONES(number): record(fd, fcntl.F_SETLK, fcntl.F_WRLCK, bit)",
        "refused(lambda: record(os.open('/dev/null', os.O_RDWR), fcntl.F_SETLK, fcntl.F_WRLCK, bit))",
    ),
    "write locks on another device": (
        "fd = os.open('/dev/zero', os.O_RDWR)\n"
        "for bit in ONES(number): record(fd, fcntl.F_SETLK, fcntl.F_WRLCK, bit)",
        "refused(lambda: record(os.open('/dev/zero', os.O_RDWR), fcntl.F_SETLK, fcntl.F_WRLCK, bit))",
    ),
    "locks of an open file description": (
        "fd = opened(FILE)\nfor bit in ONES(number): record(fd, 37, fcntl.F_RDLCK, bit)",
        "marked(36, bit)",
    ),
    "flock on library files": (
        "held = [open(LIBRARY[bit]) for bit in ONES(number)]\n"
        "for file in held: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "refused(lambda: fcntl.flock(open(LIBRARY[bit]), fcntl.LOCK_EX | fcntl.LOCK_NB))",
    ),
    "shared flock on library files": (
        "held = [open(LIBRARY[bit]) for bit in ONES(number)]\n"
        "for file in held: fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)",
        "refused(lambda: fcntl.flock(open(LIBRARY[bit]), fcntl.LOCK_EX | fcntl.LOCK_NB))",
    ),
    "flock on folders": (
        "folders = sorted(p for p in glob.glob(os.path.dirname(FILE) + '/**/', recursive=True))\n"
        "held = [os.open(folders[bit], os.O_RDONLY) for bit in ONES(number)]\n"
        "for fd in held: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "refused(lambda: fcntl.flock(os.open(sorted(p for p in glob.glob(os.path.dirname(FILE) + '/**/',"
        " recursive=True))[bit], os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB))",
    ),
    "lockf of the C library": (
        "fd = os.open('/dev/null', os.O_RDWR)\n"
        "for bit in ONES(number): os.lseek(fd, bit, 0); os.lockf(fd, os.F_TLOCK, 1)",
        "refused(lambda: os.lockf(os.open('/dev/null', os.O_RDWR), os.F_TEST, 1 + bit))",
    ),
    "leases": (
        "held = [os.open(LIBRARY[bit], os.O_RDONLY) for bit in ONES(number)]\n"
        "for fd in held: fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)",
        "fcntl.fcntl(os.open(LIBRARY[bit], os.O_RDONLY), fcntl.F_GETLEASE) != fcntl.F_UNLCK",
    ),
    "abstract sockets": (
        "held = []\nfor bit in ONES(number):\n  held.append(socket.socket(socket.AF_UNIX))\n"
        "  held[-1].bind(f'\\0covert{bit}'); held[-1].listen()",
        "not refused(lambda: socket.socket(socket.AF_UNIX).connect(f'\\0covert{bit}'))",
    ),
    "names in /dev/shm and /tmp": (
        "for bit in ONES(number):\n  for place in ('/dev/shm', '/tmp', '/var/tmp', '/run'):\n"
        "    with contextlib.suppress(OSError): open(f'{place}/covert{bit}', 'w').close()",
        "any(os.path.exists(f'{p}/covert{bit}') for p in ('/dev/shm', '/tmp', '/var/tmp', '/run'))",
    ),
    "shared memory and queues of System V": (
        "for bit in ONES(number):\n  C.shmget(7000 + bit, 4096, 0o1666); C.msgget(7000 + bit, 0o1666)",
        "C.shmget(7000 + bit, 4096, 0) >= 0 or C.msgget(7000 + bit, 0) >= 0",
    ),
    "message queues": (
        "for bit in ONES(number): C.mq_open(f'/covert{bit}'.encode(), os.O_CREAT | os.O_RDWR, 0o666, None)",
        "C.mq_open(f'/covert{bit}'.encode(), os.O_RDONLY) >= 0",
    ),
    "keys": (
        "for ring in (-3, -4, -5):\n  for bit in ONES(number):\n"
        "    C.syscall(248, b'user', b'covert%d' % bit, b'x', 1, ring)",
        "any(C.syscall(250, 10, ring, b'user', b'covert%d' % bit, 0) >= 0 for ring in (-3, -4, -5))",
    ),
    # To what they are, which a file's time of change shows: where this works, it must do no harm.
    "modes and times of library files": (
        "for bit in ONES(number):\n"
        "  f = LIBRARY[bit]; found = os.stat(f); mode = found.st_mode & 0o7777\n"
        "  for change in (lambda: os.chmod(f, mode), lambda: os.fchmod(opened(f), mode),\n"
        "                 lambda: os.chown(f, -1, -1), lambda: os.fchown(opened(f), -1, found.st_gid),\n"
        "                 lambda: os.utime(f, ns=(found.st_atime_ns, found.st_mtime_ns)),\n"
        "                 lambda: os.utime(opened(f), ns=(found.st_atime_ns, found.st_mtime_ns))):\n"
        "    with contextlib.suppress(OSError): change()",
        "__import__('time').time() - os.stat(LIBRARY[bit]).st_ctime < 20",
    ),
    "pages that are in the cache": (
        "for bit in range(BITS):\n  fd = os.open(LIBRARY[bit], os.O_RDONLY)\n  os.pread(fd, 1, 0)\n"
        "  if not number >> bit & 1: os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)",
        "os.preadv(os.open(LIBRARY[bit], os.O_RDONLY), [bytearray(1)], 0, os.RWF_NOWAIT) == 1",
    ),
    "watches": (
        "fd = C.inotify_init1(0)\n"
        "for bit in ONES(number): C.inotify_add_watch(fd, LIBRARY[bit].encode(), 0xfff)",
        "C.inotify_init1(0) >= 0 and opened(LIBRARY[bit]) and True",
    ),
}
SEND = """
number = NUMBER
with contextlib.suppress(Exception):
TRIED
print("sent", flush=True)
sys.stdin.read()
"""
RECEIVE = """
def refused(work):
    try:
        work()
    except OSError as error:
        return error.errno in (errno.EAGAIN, errno.EACCES, errno.ECONNREFUSED, errno.ENOENT)
    return False

def found(bit):
    try:
        return bool(ASKED)
    except Exception:
        return False

print(sum(found(bit) << bit for bit in range(BITS)))
"""


@pytest.mark.parametrize("channel", CHANNELS.values(), ids=CHANNELS.keys())
def test_a_number_does_not_cross(tier: Tier, channel: tuple[str, str]) -> None:
    send, receive = channel
    number = secrets.randbits(BITS) | 1 << BITS - 1
    sends = COMMON + SEND.replace("NUMBER", str(number)).replace("TRIED", textwrap.indent(send, "    "))
    with Sandbox({}, tier=tier) as one, Sandbox({}, tier=tier) as other:
        ours, theirs = link_to_program()
        with ours:
            job = script_job(sends.encode(), LIMITS, link=theirs.detach())
            sending = threading.Thread(target=one.run, args=(job,))
            sending.start()
            assert ours.recv(4) == b"sent"
            received = other.run(script_job((COMMON + RECEIVE.replace("ASKED", receive)).encode(), LIMITS))
        sending.join()
    assert received.exit_code == 0, received.stderr
    assert int(received.stdout) != number


HONEST = {
    "sqlite3 in a file": """
import sqlite3
one, two = sqlite3.connect("db"), sqlite3.connect("db")
one.execute("create table t (x)"); one.executemany("insert into t values (?)", [(n,) for n in range(100)])
assert two.execute("select count(*) from t").fetchone() == (0,)
one.commit()
assert two.execute("select sum(x) from t").fetchone() == (4950,)
""",
    "sqlite3 with a write-ahead log": """
import sqlite3
db = sqlite3.connect("db")
assert db.execute("pragma journal_mode=wal").fetchone() == ("wal",)
db.execute("create table t (x)"); db.execute("insert into t values (7)"); db.commit()
assert sqlite3.connect("db").execute("select x from t").fetchone() == (7,)
""",
    "sqlite3 in one transaction at a time": """
import sqlite3
one, two = sqlite3.connect("db", timeout=0), sqlite3.connect("db", timeout=0)
one.execute("create table t (x)"); one.commit()
one.execute("begin immediate")
try:
    two.execute("begin immediate")
except sqlite3.OperationalError as error:
    assert "locked" in str(error)
else:
    raise AssertionError
one.rollback(); two.execute("begin immediate")
""",
    "sqlite3 after a transaction that was torn": """
import shutil, sqlite3
db = sqlite3.connect("db"); db.execute("create table t (x)"); db.commit()
db.execute("pragma cache_size = 1"); db.executemany("insert into t values (?)", [("x" * 5000,)] * 50)
shutil.copyfile("db", "torn"); shutil.copyfile("db-journal", "torn-journal")
assert sqlite3.connect("torn").execute("select count(*) from t").fetchone() == (0,)
""",
    "dbm": """
import dbm, shelve
with dbm.open("d", "c") as db: db["a"] = "1"
with dbm.open("d") as db: assert db["a"] == b"1"
with shelve.open("s") as shelf: shelf["a"] = [1]
""",
    "mailbox": """
import mailbox
box = mailbox.mbox("m"); box.lock(); box.add("From: a\\n\\nb"); box.flush(); box.unlock()
assert len(mailbox.mbox("m")) == 1
""",
    "tempfile": """
import tempfile
with tempfile.TemporaryFile() as file, tempfile.NamedTemporaryFile() as named:
    for each in (file, named): each.write(b"1"); each.seek(0); assert each.read() == b"1"
""",
    "multiprocessing.Lock": """
import multiprocessing, threading
lock, count = multiprocessing.Lock(), [0]
def work():
    for _ in range(500):
        with lock: count[0] += 1
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert count == [2000] and not lock.acquire() is False and not lock.acquire(False)
""",
    "fcntl.lockf and fcntl.flock on its own file": """
import fcntl
with open("x", "w") as file:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB); fcntl.lockf(file, fcntl.LOCK_UN)
    fcntl.flock(file, fcntl.LOCK_EX); fcntl.flock(file, fcntl.LOCK_UN)
""",
    "posix_fadvise and preadv": """
import os
with open("x", "w+b") as file:
    file.write(b"abc"); file.flush(); os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
    assert os.preadv(file.fileno(), [bytearray(3)], 0, 0) == 3
""",
}


NEED_NAMESPACES = {"dbm", "multiprocessing.Lock"}


@pytest.mark.parametrize("name", HONEST)
def test_honest_programs_lock_their_own_files(tier: Tier, name: str) -> None:
    if tier is Tier.RESTRICTED and name in NEED_NAMESPACES:
        pytest.skip("this tier changes no modes, and has no named semaphores")
    source = HONEST[name]
    with Sandbox({}, tier=tier) as box:
        result = box.run(script_job(source.encode(), LIMITS))
    assert result.exit_code == 0, result.stderr.decode()
