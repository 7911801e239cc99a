"""What a hostile program must not reach: the host, other processes, later runs."""

import json
import os

import pytest

from tests.beside import data_beside
from whetstone.sandbox import EndReason, Tier
from whetstone.sandbox.probe import attack
from whetstone.sandbox.tiers import BUILTIN_HARNESSES, start_at

DATA = data_beside(__file__)

pytestmark = [pytest.mark.isolation, pytest.mark.every_tier]

PRELUDE = DATA["prelude"]


def test_every_probe_of_the_tier_holds(tier):
    probes = attack(start_at(tier, BUILTIN_HARNESSES), limits=True)
    assert [(r.name, r.detail) for r in probes if not r.ok] == []


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers below are x86-64's")
def test_system_calls_that_confine_or_harm_are_closed(run):
    # fmt: off
    calls = {
        "clone newns": (56, 17 | 0x20000, 0, 0, 0, 0), "clone newuser": (56, 17 | 0x10000000, 0, 0, 0, 0),
        "clone newpid": (56, 17 | 0x20000000, 0, 0, 0, 0), "clone parent": (56, 17 | 0x8000, 0, 0, 0, 0),
        "clone ptrace": (56, 17 | 0x2000, 0, 0, 0, 0), "clone3": (435, 0, 0),
        "ptrace": (101, 0, 0, 0, 0),
        "process_vm_readv": (310, 1, 0, 0, 0, 0, 0), "socket unix dgram": (41, 1, 2, 0),
        "socket netlink": (41, 16, 3, 0), "socketpair dgram": (53, 1, 2, 0, 0), "sendmsg": (46, 7, 0, 0),
        "mount": (165, 0, 0, 0, 0, 0), "umount": (166, 0, 0), "unshare": (272, 0x10000000),
        "setns": (308, 0, 0), "bpf": (321, 0, 0, 0), "perf": (298, 0, 0, 0, 0, 0),
        "keyctl": (250, 0, 0, 0), "add_key": (248, 0, 0, 0, 0, 0), "io_uring": (425, 1, 0),
        "userfaultfd": (323, 0), "memfd": (319, 0, 0), "shmget": (29, 0, 4096, 0o1600),
        "mq_open": (240, 0, 0, 0, 0), "kill 1": (62, 1, 0), "tgkill 1": (234, 1, 1, 0),
        "tkill": (200, 1, 0), "pidfd_send_signal": (424, 0, 0, 0, 0),
        "prlimit 1": (302, 1, 7, 0, 0), "personality": (135, 0), "seccomp": (317, 0, 0, 0),
        "prctl": (157, 4, 1, 0, 0, 0), "chroot": (161, 0), "pivot_root": (155, 0, 0),
        "open_by_handle_at": (304, 0, 0, 0), "kcmp": (312, 1, 1, 0, 0, 0), "fcntl F_SETOWN": (72, 1, 8, 1),
        "fcntl F_SETSIG": (72, 1, 10, 9), "setpriority": (141, 0, 1, 19),
        "sched_setaffinity": (203, 1, 0, 0), "sched_setscheduler": (144, 1, 0, 0),
        "pidfd_getfd": (438, 0, 0, 0), "reboot": (169, 0, 0, 0, 0), "swapon": (167, 0, 0),
        "init_module": (175, 0, 0, 0), "kexec": (246, 0, 0, 0, 0), "clock_settime": (227, 0, 0),
        "sethostname": (170, 0, 0), "inotify": (253,), "fanotify": (300, 0, 0), "syslog": (103, 3, 0, 0),
        "quotactl": (179, 0, 0, 0, 0), "iopl": (172, 3), "sync": (162,),
        "move_pages": (279, 1, 0, 0, 0, 0, 0),
    }
    # fmt: on
    result = run(
        PRELUDE
        + f"import json\ncalls = {calls!r}\n"
        + "print(json.dumps({name: call(*args) for name, args in calls.items()}))"
    )
    answers: dict[str, int] = json.loads(result.stdout)
    assert len(answers) == len(calls)
    assert {name: answer for name, answer in answers.items() if answer not in (-1, -38)} == {}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="x32 calls exist on x86-64 only")
def test_calls_of_another_numbering_kill(run):
    assert run(PRELUDE + "call(0x40000000 + 39)").ended is EndReason.SIGNALED


def test_no_program_is_executed_where_not_all_processes_are_counted(run, tier):
    if tier is not Tier.RESTRICTED:
        pytest.skip("this tier accounts for whole trees")
    result = run(DATA["executing"])
    assert result.stdout.split() == [b"refused"] * 4, result.stderr


def test_a_tier_that_cannot_account_for_processes_refuses_them(run, tier):
    if tier is not Tier.RESTRICTED:
        pytest.skip("this tier accounts for whole trees")
    result = run(DATA["forking"])
    assert result.stdout.split() == [b"refused"] * 5, result.stderr


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers below are x86-64's")
def test_system_calls_that_start_processes_are_closed_where_they_are_refused(run, tier):
    if tier is not Tier.RESTRICTED:
        pytest.skip("this tier accounts for whole trees")
    result = run(PRELUDE + "print(call(57), call(58), call(56, 17, 0, 0, 0, 0))")
    assert result.stdout == b"-1 -1 -1\n"


def test_limits_cannot_be_raised(run):
    result = run(DATA["raising_limits"])
    assert result.stdout.split() == [b"refused"] * 5
    assert result.exit_code == 0, result.stderr


def test_a_program_is_an_ordinary_user_without_capabilities(run, tier):
    result = run(
        PRELUDE
        + "import struct\nh = struct.pack('=II', 0x20080522, 0); d = ctypes.create_string_buffer(24)\n"
        + "libc.capget(h, d); print(any(d.raw), os.getuid(), os.getgroups())"
    )
    capable, uid, groups = result.stdout.decode().split(maxsplit=2)
    assert capable == "False"
    if tier is not Tier.RESTRICTED:
        assert (int(uid) > 1000, groups) == (True, "[]\n")


def test_tmp_is_fresh_writable_and_private(run):
    leave = (
        "import os\nprint(sorted(os.listdir('.')))\n"
        "os.mkdir('d'); open('d/f', 'w').write('secret'); os.symlink('/etc', 'link'); os.mkfifo('pipe')\n"
        "import contextlib, tempfile\nos.mkdir('locked'); open('locked/f', 'w')\n"
        "with contextlib.suppress(PermissionError): os.fchmod(os.open('locked', 0), 0)\n"  # restricted
        "print(os.path.samefile(tempfile.gettempdir(), '.'))"
    )
    for _ in range(3):
        result = run(leave)
        assert result.stdout == b"['main.py']\nTrue\n", result.stderr


def test_a_very_deep_directory_does_not_stay(run):
    dig = "import os\nfor _ in range(1500):\n    os.mkdir('d'); os.chdir('d')\nprint('dug')"
    assert run(dig).stdout == b"dug\n"
    assert run("import os; print(os.listdir('.'))").stdout == b"['main.py']\n"


def test_a_run_changes_nothing_for_the_next(run):
    run(
        "import sys, os, builtins, random, math\n"
        "builtins.print = None; sys.path.clear(); os.environ['X'] = '1'; math.pi = 3; os.umask(0o777)\n"
        "sys.modules['json'] = None; sys.setrecursionlimit(50); import signal; signal.alarm(1)"
    )
    check = (
        "import os, sys, math, json\n"
        "print('X' in os.environ, math.pi > 3.1, sys.getrecursionlimit() > 999, oct(os.umask(0)))"
    )
    assert run(check).stdout == b"False True True 0o22\n"


def test_nothing_of_an_earlier_run_is_in_memory(run):
    secret = b"the-secret-of-the-first-run"
    run(f"s = input(); print(s); print({secret!r})", secret * 100)
    dump = DATA["dump"]
    result = run(dump, cpu_s=20, output_bytes=256 << 20)
    assert b"own-42-marker" in result.stdout, "the dump does not show the program's own memory"
    assert secret not in result.stdout


def test_descriptors_are_the_expected_ones(run):
    source = DATA["descriptors"]
    assert run(source).stdout == b"[0, 1, 2, 7]\n"


def test_the_hosts_files_are_as_before_after_an_attack_on_them(run, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    victim.chmod(0o640)
    before = victim.stat()
    attempts = DATA["attempts"]
    result = run(
        f"import os\np = {str(victim)!r}\nachieved = []\n"
        f"for attempt in {attempts!r}:\n"
        "    try: eval(attempt); achieved.append(attempt)\n"
        "    except OSError: pass\n"
        "print(achieved)"
    )
    assert result.stdout == b"[]\n", result.stderr
    after = victim.stat()
    assert victim.read_text() == "mine"
    assert (after.st_mode, after.st_mtime_ns, after.st_uid) == (
        before.st_mode,
        before.st_mtime_ns,
        before.st_uid,
    )


def test_pythons_own_library_cannot_be_changed(run):
    result = run(
        "import os\np = os.__file__\ndone = []\n"
        "for f in (os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND):\n"
        "    try: os.open(p, f); done.append(f)\n"
        "    except OSError: pass\n"
        "print(done, os.stat(p).st_size > 1000)"
    )
    assert result.stdout == b"[] True\n"


def test_the_caller_survives_signals_that_are_sent_to_it(run):
    ours = os.getpid()
    run(
        f"import os, signal\nfor pid in (1, os.getppid(), {ours}, -1, 0, -{ours}):\n"
        "    for s in (signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP, signal.SIGINT):\n"
        "        try: os.kill(pid, s)\n"
        "        except OSError: pass"
    )
    assert run("print(1)").stdout == b"1\n"
