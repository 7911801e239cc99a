"""Honest programs that use much of the language and of its standard library are accepted."""
# ruff: noqa: E501 (programs on one line each read better than wrapped)

from __future__ import annotations

import pytest

from tests.judge.judge_problems import python, stdin_problem
from whetstone.judge import Judge

# All print ok.
PROGRAMS = {
    "future": "from __future__ import annotations\ndef f(x: Undefined) -> Nothing: return 'ok'\nprint(f(1))",
    "docstring before the future": "'''Solves it.'''\nfrom __future__ import division\nprint('ok' if __doc__ == 'Solves it.' else __doc__)",
    "coding line": "# -*- coding: latin-1 -*-\nprint('ok')",
    "shebang": "#!/usr/bin/env python3\nprint('ok')",
    "byte order mark": "\ufeffprint('ok')",
    "windows line ends": "def f():\r\n    return 'ok'\r\nprint(f())\r\n",
    "tabs": "if True:\n\tif True:\n\t\tprint('ok')",
    "form feed": "def f(): return 'ok'\n\x0c\nprint(f())",
    "names in other alphabets": "größe = 'ok'\nπ = 3\nprint(größe)",
    "main guard": "def main():\n    print('ok')\n\nif __name__ == '__main__':\n    main()",
    "globals": "x = 1\ndef f():\n    global x\n    x += 1\nf()\nprint('ok' if x == 2 and globals()['x'] == 2 else x)",
    "dataclass": "from dataclasses import asdict, dataclass, field, replace\n@dataclass(order=True, slots=True)\nclass P:\n    x: int\n    y: list = field(default_factory=list, compare=False)\nassert sorted([P(2), P(1)])[0] == P(1) and asdict(replace(P(1), x=3)) == {'x': 3, 'y': []}\nprint('ok')",
    "named tuple": "from typing import NamedTuple\nfrom collections import namedtuple\nclass P(NamedTuple):\n    x: int = 0\nQ = namedtuple('Q', 'a b', defaults=[2])\nassert P(1)._replace(x=2) == (2,) and Q(1)._asdict() == {'a': 1, 'b': 2}\nprint('ok')",
    "enum": "from enum import Enum, Flag, IntEnum, auto\nclass C(Enum):\n    A = auto()\nclass F(Flag):\n    X = 1\n    Y = 2\nassert C['A'] is C(1) and F.X | F.Y == F(3)\nprint('ok')",
    "generics": "from typing import Generic, Protocol, TypeVar, get_type_hints, overload\nT = TypeVar('T')\nclass Box(Generic[T]):\n    def __init__(self, x: T) -> None: self.x: T = x\nclass Has(Protocol):\n    x: int\ndef f(b: 'Box[int]') -> 'int | None': return b.x\nassert f(Box[int](3)) == 3 and get_type_hints(f)['b'] == Box[int]\nprint('ok')",
    "pickle": "import pickle\nclass A:\n    def __init__(self, x): self.x = x\n    def __eq__(self, other): return self.x == other.x\nassert pickle.loads(pickle.dumps(A(3))) == A(3)\nprint('ok')",
    "copy": "import copy\nclass Node:\n    def __init__(self): self.next = self\nn = copy.deepcopy(Node())\nassert n.next is n and copy.copy([1]) == [1]\nprint('ok')",
    "shelve and json files": "import json\njson.dump({'a': [1]}, open('state.json', 'w'))\nprint('ok' if json.load(open('state.json')) == {'a': [1]} else 'no')",
    "match": "def f(x):\n    match x:\n        case {'k': [a, *rest], **more} if a > 0: return a, rest, more\n        case (1 | 2) as n: return n\n        case str(s): return s\n        case _: return None\nassert f({'k': [1, 2], 'z': 0}) == (1, [2], {'z': 0}) and f(2) == 2 and f('s') == 's' and f(None) is None\nprint('ok')",
    "walrus": "data = [1, 2, 3]\nif (n := len(data)) > 2 and any((hit := x) == 2 for x in data): print('ok' if hit == 2 and n == 3 else 'no')",
    "comprehensions": "assert {k: {*v} for k, v in zip('ab', ([1, 1], [2]))} == {'a': {1}, 'b': {2}}\nprint('ok')",
    "closures": "def counter():\n    n = 0\n    def step():\n        nonlocal n\n        n += 1\n        return n\n    return step\nc = counter()\nc()\nprint('ok' if c() == 2 else 'no')",
    "decorators": "import functools\ndef twice(f):\n    @functools.wraps(f)\n    def g(*a, **k): return f(f(*a, **k))\n    return g\n@twice\ndef inc(x): return x + 1\nprint('ok' if inc(1) == 3 and inc.__name__ == 'inc' else 'no')",
    "caches": "from functools import cache, cached_property, lru_cache\n@lru_cache(maxsize=None)\ndef fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)\n@cache\ndef g(x): return x\nclass A:\n    @cached_property\n    def p(self): return fib(90)\nassert A().p == 2880067194370816120 and fib.cache_info().hits\nprint('ok')",
    "generators": "def g():\n    x = yield 1\n    yield from (x, x)\n    return 9\nit = g()\nnext(it)\nassert it.send(5) == 5 and list(it) == [5]\nprint('ok')",
    "exceptions": "class Mine(ValueError): pass\ntry:\n    try: raise Mine('a') from KeyError('b')\n    except (Mine, TypeError) as e: raise\n    finally: x = 1\nexcept ValueError as e:\n    print('ok' if str(e) == 'a' and isinstance(e.__cause__, KeyError) else 'no')",
    "exception groups": "try:\n    raise ExceptionGroup('g', [ValueError(1), TypeError(2)])\nexcept* ValueError as g:\n    assert len(g.exceptions) == 1\nexcept* TypeError:\n    print('ok')",
    "context managers": "import contextlib\n@contextlib.contextmanager\ndef m():\n    yield 'ok'\nwith m() as x, contextlib.suppress(KeyError), contextlib.ExitStack() as s:\n    s.callback(print, x)\n    {}['k']",
    "metaclass": "class M(type):\n    def __call__(cls, *a): return super().__call__(*a).value\nclass A(metaclass=M):\n    def __init__(self): self.value = 'ok'\nprint(A())",
    "descriptors": "class D:\n    def __set_name__(self, owner, name): self.name = '_' + name\n    def __get__(self, o, t=None): return getattr(o, self.name)\n    def __set__(self, o, v): setattr(o, self.name, v)\nclass A:\n    x = D()\na = A()\na.x = 'ok'\nprint(a.x)",
    "operators": "import operator\nclass V:\n    def __init__(self, *x): self.x = x\n    def __add__(self, o): return V(*map(operator.add, self.x, o.x))\n    def __matmul__(self, o): return sum(map(operator.mul, self.x, o.x))\n    def __lt__(self, o): return self.x < o.x\n    def __hash__(self): return hash(self.x)\n    def __eq__(self, o): return self.x == o.x\nassert V(1, 2) @ V(3, 4) == 11 and V(1) + V(2) == V(3) and sorted([V(2), V(1)])[0] == V(1) and len({V(1), V(1)}) == 1\nprint('ok')",
    "exec and eval": "scope = {}\nexec('def f(x): return x * 2', scope)\nassert eval('f(3)', scope) == 6 and eval(compile('1 + 1', 'c', 'eval')) == 2\nprint('ok')",
    "ast": "import ast\nassert ast.literal_eval('[1, (2, {3})]') == [1, (2, {3})]\nprint('ok')",
    "inspect": "import inspect\ndef f(a, b=2): return a\nassert str(inspect.signature(f)) == '(a, b=2)' and inspect.getsource(f).startswith('def f')\nprint('ok')",
    "own file": "import os, sys\nassert os.path.exists(__file__) and sys.argv == [__file__] and len(sys.argv[1:]) == 0\nprint('ok')",
    "import of itself": "import sys\nme = sys.modules['__main__']\nX = 5\nimport __main__\nprint('ok' if me.X == 5 and __main__ is me else 'no')",
    "importlib": "import importlib\nprint('ok' if importlib.import_module('collections.abc').Mapping else 'no')",
    "optional import": "try:\n    import no_such_package\nexcept ImportError:\n    no_such_package = None\nprint('ok')",
    "asyncio": "import asyncio\nasync def work(x):\n    await asyncio.sleep(0.001)\n    return x\nasync def main():\n    assert await asyncio.gather(*(work(i) for i in range(10))) == list(range(10))\n    async with asyncio.timeout(5):\n        print('ok')\nasyncio.run(main())",
    "asyncio queue and thread": "import asyncio\nasync def main():\n    q = asyncio.Queue()\n    t = asyncio.create_task(q.get())\n    await q.put('ok')\n    print(await asyncio.to_thread(lambda x: x, await t))\nasyncio.run(main())",
    "event loop by hand": "import asyncio\nloop = asyncio.new_event_loop()\nasync def f(): return 'ok'\nprint(loop.run_until_complete(f()))\nloop.close()",
    "threading timer and event": "import threading\ne = threading.Event()\nthreading.Timer(0.01, e.set).start()\nprint('ok' if e.wait(10) else 'no')",
    "thread local": "import threading\nd = threading.local()\nd.x = 'ok'\nprint(d.x)",
    "random": "import random\nrandom.seed(42)\na = [random.random() for _ in range(3)]\nrandom.seed(42)\nassert a == [random.random() for _ in range(3)]\nrandom.shuffle(a)\nprint('ok' if len(random.sample(range(10), 3)) == 3 and random.Random(1).randint(1, 1) == 1 else 'no')",
    "secrets and uuid": "import secrets, uuid\nassert len(secrets.token_hex(4)) == 8 and uuid.uuid4() != uuid.uuid4()\nprint('ok')",
    "time": "import time\na = time.perf_counter(); time.sleep(0.005); b = time.perf_counter()\nassert b > a and time.time() > 1e9 and time.process_time() >= 0 and time.monotonic_ns() > 0 and time.strftime('%Y', time.gmtime(0)) == '1970'\nprint('ok')",
    "datetime": "from datetime import date, datetime, timedelta, timezone\nassert (date(2024, 3, 1) - timedelta(days=1)).day == 29 and datetime.now(timezone.utc).year > 2000 and datetime.strptime('1/2/2003', '%d/%m/%Y').month == 2\nprint('ok')",
    "zoneinfo": "from zoneinfo import ZoneInfo, ZoneInfoNotFoundError\nfrom datetime import datetime\ntry:\n    assert datetime(2024, 7, 1, tzinfo=ZoneInfo('UTC')).utcoffset().seconds == 0\nexcept ZoneInfoNotFoundError:\n    pass\nprint('ok')",
    "calendar": "import calendar\nprint('ok' if calendar.monthrange(2024, 2) == (3, 29) else 'no')",
    "locale": "import locale\nlocale.setlocale(locale.LC_ALL, '')\nprint('ok' if locale.getpreferredencoding() else 'no')",
    "encodings": "import sys\nassert sys.stdout.encoding.lower() == 'utf-8' and 'é'.encode('cp1252') == b'\\xe9' and 'x'.encode('utf-16') and '日'.encode('shift_jis') and 'ü'.encode('idna')\nprint('ok')",
    "tempfile": "import os, tempfile\nwith tempfile.NamedTemporaryFile('w+') as f:\n    f.write('x'); f.seek(0)\n    assert f.read() == 'x' and os.path.exists(f.name)\nwith tempfile.TemporaryDirectory() as d:\n    open(os.path.join(d, 'a'), 'w').close()\n    assert os.listdir(d) == ['a']\nprint('ok')",
    "files": "import os, pathlib, shutil\nos.mkdir('d')\np = pathlib.Path('d/a.txt')\np.write_text('x')\nshutil.copyfile(p, 'b.txt')\nos.rename('b.txt', 'c.txt')\nassert pathlib.Path('c.txt').read_text() == 'x' and sorted(os.listdir('.')) == ['c.txt', 'd', 'main.py']\nshutil.rmtree('d')\nprint('ok')",
    "sqlite": "try:\n    import sqlite3\n    c = sqlite3.connect(':memory:')\n    c.execute('create table t(x)')\n    c.execute('insert into t values (7)')\n    assert c.execute('select x from t').fetchone() == (7,)\nexcept ImportError:\n    pass\nprint('ok')",
    "compression": "import bz2, gzip, lzma, zlib\nassert all(m.decompress(m.compress(b'x' * 999)) == b'x' * 999 for m in (bz2, gzip, lzma, zlib))\nprint('ok')",
    "hashing": "import hashlib, hmac\nassert hashlib.md5(b'a').hexdigest().startswith('0cc1') and hmac.new(b'k', b'm', 'sha256').hexdigest() and hashlib.sha3_256(b'').digest()\nprint('ok')",
    "decimal and fractions": "from decimal import ROUND_HALF_UP, Decimal, getcontext, localcontext\nfrom fractions import Fraction\ngetcontext().prec = 50\nwith localcontext() as c:\n    c.prec = 5\n    assert str(Decimal(1) / 3) == '0.33333'\nassert Decimal('2.5').quantize(Decimal('1'), ROUND_HALF_UP) == 3 and Fraction(1, 3) + Fraction(1, 6) == Fraction(1, 2)\nprint('ok')",
    "itertools": "from itertools import accumulate, chain, groupby, pairwise, permutations\nassert list(accumulate([1, 2, 3])) == [1, 3, 6] and list(pairwise('abc')) == [('a', 'b'), ('b', 'c')]\nassert [(k, len(list(g))) for k, g in groupby('aab')] == [('a', 2), ('b', 1)] and len(list(permutations(chain('ab', 'c')))) == 6\nprint('ok')",
    "numbers": "import cmath, math\nassert math.comb(5, 2) == 10 and math.isqrt(10**40) == 10**20 and pow(3, -1, 7) == 5 and cmath.phase(-1) and math.lcm(4, 6) == 12 and (0.1).hex()\nprint('ok')",
    "statistics": "import statistics\nprint('ok' if statistics.median([3, 1, 2]) == 2 and statistics.fmean([1, 2]) == 1.5 else 'no')",
    "collections": "from collections import ChainMap, Counter, OrderedDict, UserDict, defaultdict, deque\nd = deque([1, 2], maxlen=2)\nd.appendleft(0)\no = OrderedDict(a=1, b=2)\no.move_to_end('a')\nassert list(d) == [0, 1] and list(o) == ['b', 'a'] and Counter('aab') - Counter('a') == Counter('ab') and defaultdict(list)['x'] == [] and ChainMap({}, {1: 2})[1] == 2\nprint('ok')",
    "heapq and bisect": "import bisect, heapq\nh = [3, 1, 2]\nheapq.heapify(h)\nassert heapq.heappop(h) == 1 and heapq.nlargest(1, h) == [3] and bisect.bisect_left([1, 3, 5], 3, key=lambda x: x) == 1\nprint('ok')",
    "regular expressions": "import re\nassert re.sub(r'(?P<a>\\d+)', lambda m: str(int(m['a']) * 2), 'x21') == 'x42' and re.fullmatch(r'(?i:AB)+', 'abAB')\nprint('ok')",
    "struct and array": "import array, struct\nassert struct.unpack('<Ih', struct.pack('<Ih', 7, -1)) == (7, -1) and sum(array.array('q', [1, 2])) == 3 and memoryview(b'ab')[1] == 98\nprint('ok')",
    "ctypes": "import ctypes\nassert ctypes.c_int32(2**31).value == -2**31 and (ctypes.c_int * 3)(1, 2, 3)[2] == 3\nprint('ok')",
    "weak references and gc": "import gc, weakref\nclass A: pass\na = A()\nr = weakref.ref(a)\ndel a\ngc.collect()\nassert r() is None\ngc.disable(); gc.enable(); gc.freeze()\nprint('ok')",
    "alarm": "import signal\ndef ring(*_): raise TimeoutError\nsignal.signal(signal.SIGALRM, ring)\ntry:\n    signal.setitimer(signal.ITIMER_REAL, 0.01)\n    while True: pass\nexcept TimeoutError:\n    print('ok')",
    "alarm switched off": "import signal\nsignal.signal(signal.SIGALRM, lambda *_: None)\nsignal.alarm(1)\nsignal.alarm(0)\nprint('ok')",
    "own signal": "import os, signal\nsignal.signal(signal.SIGUSR1, lambda *_: print('ok'))\nos.kill(os.getpid(), signal.SIGUSR1)",
    "keyboard interrupt caught": "import signal\ntry:\n    signal.raise_signal(signal.SIGINT)\nexcept KeyboardInterrupt:\n    print('ok')",
    "broken pipe handling": "import signal\nsignal.signal(signal.SIGPIPE, signal.SIG_DFL)\nprint('ok')",
    "fault handler": "import faulthandler, sys\nfaulthandler.enable()\nfaulthandler.dump_traceback_later(30)\nfaulthandler.cancel_dump_traceback_later()\nprint('ok')",
    "traceback": "import traceback\ntry: 1 / 0\nexcept ZeroDivisionError: text = traceback.format_exc()\nprint('ok' if '1 / 0' in text and 'main.py' in text else text)",
    "resource": "import resource\nresource.setrlimit(resource.RLIMIT_STACK, (resource.getrlimit(resource.RLIMIT_STACK)))\nprint('ok' if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss else 'no')",
    "environment": "import getpass, os, platform\nos.environ['X'] = '1'\nassert os.getenv('X') == '1' and os.getenv('ONLINE_JUDGE') is None and os.getpid() and platform.python_version() and os.cpu_count()\nprint('ok')",
    "local debugging switch": "import os, sys\nif os.path.exists('input.txt'):\n    sys.stdin = open('input.txt')\n    sys.stdout = open('output.txt', 'w')\nprint('ok')",
    "subprocess refused": "import subprocess\ntry:\n    subprocess.run(['true'], check=True)\nexcept OSError:\n    pass\nprint('ok')",
    "network refused": "import socket, urllib.request\ntry:\n    urllib.request.urlopen('http://127.0.0.1:9', timeout=1)\nexcept OSError:\n    print('ok')",
    "stack unlimited": "import resource, sys\nresource.setrlimit(resource.RLIMIT_STACK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\nsys.setrecursionlimit(2**31 - 1)\nprint('ok')",
    "stack limit with a hard limit of minus one": "import resource\nresource.setrlimit(resource.RLIMIT_STACK, (2**29, -1))\nprint('ok')",
    "stack limit in a list": "import resource\nresource.setrlimit(resource.RLIMIT_STACK, [0x10000000, resource.RLIM_INFINITY])\nprint('ok')",
    "stack limit lowered": "import resource\nresource.setrlimit(resource.RLIMIT_STACK, (1 << 28, 1 << 28))\nprint('ok')",
    "thread with a gigabyte of stack": "import threading\nthreading.stack_size(2**30)\nt = threading.Thread(target=print, args=('ok',))\nt.start()\nt.join()",
    "clearing the screen": "import os\nos.system('clear')\nprint('ok')",
    "own directory gone": "import os, shutil\nos.remove(__file__)\nshutil.rmtree(os.getcwd(), ignore_errors=True)\nprint('ok')",
    "modules thrown out": "import sys\nfor m in list(sys.modules):\n    if m not in ('sys', 'builtins', '__main__'): del sys.modules[m]\nprint('ok')",
    "recursion limit lowered": "import sys\nsys.setrecursionlimit(60)\nprint('ok')",
    "stdout set to None": "import sys\nprint('ok')\nsys.stdout.flush()\nsys.stdout = None",
    "stdout deleted": "import sys\nprint('ok')\ndel sys.stdout",
    "descriptors closed": "import os\nprint('ok', flush=True)\nfor fd in (0, 1, 2): os.close(fd)",
    "pipe and socket pair": "import os, socket\nr, w = os.pipe()\nos.write(w, b'o')\na, b = socket.socketpair()\na.send(b'k')\nprint(os.read(r, 1).decode() + b.recv(1).decode())",
    "C library": "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.puts(b'ok')\nlibc.fflush(None)",
    "warnings are errors": "import warnings\nwarnings.simplefilter('error')\nprint('ok')",
    "stdin through the event loop": "import asyncio, sys\nasync def main():\n    print(await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline) or 'ok')\nasyncio.run(main())",
    "counting cores": "import multiprocessing, os\nprint('ok' if multiprocessing.cpu_count() and len(os.sched_getaffinity(0)) else 'no')",
    "signals ignored": "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nsignal.signal(signal.SIGTERM, lambda *_: None)\nprint('ok')",
    "doctest": "import doctest\ndef f(x):\n    '''\n    >>> f(2)\n    4\n    '''\n    return x * x\nprint('ok' if doctest.testmod().failed == 0 else 'no')",
    "unittest of its own": "import io, unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertEqual(1, 1)\nr = unittest.TextTestRunner(stream=io.StringIO()).run(unittest.defaultTestLoader.loadTestsFromTestCase(T))\nprint('ok' if r.wasSuccessful() else 'no')",
    "argparse": "import argparse\np = argparse.ArgumentParser()\np.add_argument('--n', type=int, default=3)\nprint('ok' if p.parse_args().n == 3 else 'no')",
    "cProfile": "import cProfile, io, pstats\nwith cProfile.Profile() as p: sum(range(10))\npstats.Stats(p, stream=io.StringIO()).print_stats()\nprint('ok')",
    "settrace": "import sys\nlines = []\nsys.settrace(lambda f, e, a: lines.append(e))\n(lambda: 1)()\nsys.settrace(None)\nprint('ok' if lines else 'no')",
    "interpreter's settings": "import sys\nsys.setswitchinterval(0.01)\nsys.setrecursionlimit(5000)\nassert sys.maxsize > 2**32 and sys.version_info >= (3, 11) and sys.getsizeof(1) and sys.intern('a') is sys.intern('a') and not sys.flags.optimize\nprint('ok')",
    "graph library style": "from graphlib import TopologicalSorter\nprint('ok' if list(TopologicalSorter({'b': {'a'}}).static_order()) == ['a', 'b'] else 'no')",
    "textwrap difflib string": "import difflib, string, textwrap\nassert textwrap.dedent('  a') == 'a' and string.ascii_lowercase[:2] == 'ab' and difflib.get_close_matches('appel', ['apple']) == ['apple']\nprint('ok')",
    "site builtins": "print('ok' if all(callable(f) for f in (exit, quit, help, open, input)) else 'no', end='')",
    "object as a number": "class I(int):\n    def __repr__(self): return 'ok'\nprint([I(3)][0].__repr__())",
    "bad habits": "import os, sys, math, re, collections, itertools, functools, heapq, bisect, string, random, copy, operator, typing\nfrom math import *\nfrom collections import *\nfrom itertools import *\nfrom functools import *\nfrom typing import *\nprint('ok' if gcd(4, 6) == 2 and Counter('a')['a'] == 1 and reduce(lambda a, b: a + b, [1, 2]) == 3 else 'no')",
    "shadowed builtins": "list = [1]\nsum = 0\nfor str in list: sum += str\nid = input = sum\nprint('ok' if id == 1 else 'no')",
    "semicolons": "import sys; x = 1; print('ok' if x else 'no');",
    "a last line without newline after a comment": "print('ok')\n# done",
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_python_offers_works(judge: Judge, name: str) -> None:
    problem = stdin_problem(("", "ok"), limits={"cpu_s": 5.0, "memory_mb": 256.0, "output_mb": 1.0})
    judgement = judge.judge(problem, python(PROGRAMS[name]))
    assert judgement.accepted, judgement


POOL = """from concurrent.futures import ProcessPoolExecutor
import multiprocessing, os

def square(x):
    return x * x

if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool, ProcessPoolExecutor(2) as more:
        ok = pool.map(square, range(5)) == list(more.map(square, range(5))) == [0, 1, 4, 9, 16]
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, b"ok")
        os._exit(0)
    os.wait()
    print(os.read(read, 9).decode() if ok else "no")
"""


def test_processes_are_for_programs_to_use(judge: Judge) -> None:
    if judge.isolation == "restricted":
        pytest.skip("a program has one process on this tier")
    judgement = judge.judge(stdin_problem(("", "ok\n")), python(POOL))
    assert judgement.accepted, judgement.reason
