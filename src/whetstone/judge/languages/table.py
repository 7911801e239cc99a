"""The languages that programs may be in: one declarative entry each.

In an entry's command lines, ``{tool[NAME]}`` is the path of a tool found on this machine, ``{home}`` the
folder that the first tool is installed in, ``{kit}`` the folder of what the compiler prepared once (an
argument with it is left out where there is none), ``{memory_mb}`` the memory limit,
``{stack_mb}`` and ``{stack_kb}`` the stack that a runtime with stacks of its own may have, ``{source}``
the source file and ``{main}`` the class that Java starts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from whetstone.errors import UserError, did_you_mean

PYTHON = "python"
PYTHON_SCIENTIFIC = "python-scientific"


@dataclass(frozen=True)
class Kit:
    """What a compiler prepares once for all programs: ``commands`` over ``files`` make what is kept.

    With a kit, ``use`` comes before the commands that compile. There is no need for one where the pattern
    ``unless`` finds something in the tools' folder.
    """

    files: dict[str, str]
    commands: tuple[tuple[str, ...], ...]
    keep: tuple[str, ...]
    use: tuple[tuple[str, ...], ...] = ()
    unless: str = ""


@dataclass(frozen=True)
class Language:
    """How programs of one language are compiled and run. No ``run``: Python, which has a fork-server."""

    name: str
    aliases: tuple[str, ...] = ()
    source: str = ""
    tools: tuple[str, ...] = ()
    """Executables that must be there, found on PATH; the first one's version is the language's."""
    install: str = ""
    """What a person installs to have it."""
    version: tuple[str, ...] = ("--version",)
    reads: tuple[str, ...] = ()
    """Glob patterns of what the tools read outside of their own folder and the system's libraries."""
    compile: tuple[tuple[str, ...], ...] = ()
    compile_space_mb: int = 0
    """What a compiler that reserves no more than it uses may reserve; 0 for one that reserves more."""
    keep: tuple[str, ...] = ()
    """Glob patterns of the compiler's products, which a run finds in its working directory."""
    kit: Kit | None = None
    run: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict[str, str])
    extra_memory_mb: int = 0
    """Resident memory of the runtime itself, on top of a problem's limit."""
    extra_cpu_s: float = 0.0
    """CPU time that the runtime takes to start, on top of a problem's limit."""
    processes: bool = False
    """Programs of it usually start processes, beyond threads."""
    needs_namespaces: str = ""
    """Why the restricted tier cannot run it; empty where it can."""


# A configuration that is there but may not be read would end it.
_NODE_ENVIRONMENT = {"OPENSSL_CONF": "/dev/null"}
_GCC_FLAGS = ("-O2", "-fmax-errors=20", "-fno-diagnostics-show-caret", "-w")


def _cpp(standard: str, *aliases: str) -> Language:
    flags = ("{tool[g++]}", f"-std=gnu++{standard}", *_GCC_FLAGS)
    header = "bits/stdc++.h"
    return Language(
        name=f"cpp{standard}",
        aliases=aliases,
        source="main.cpp",
        tools=("g++",),
        install="g++ (apt install g++)",
        compile=((*flags, "-I{kit}", "-o", "main", "{source}"),),
        compile_space_mb=2048,
        keep=("main",),
        kit=Kit(
            files={"all.h": f"#include <{header}>\n", "bits/keep": ""},
            commands=((*flags, "-x", "c++-header", "all.h", "-o", f"{header}.gch"),),
            keep=(f"{header}.gch",),
        ),
        run=("./main",),
    )


_GO_PACKAGES = (
    *("bufio", "bytes", "cmp", "container/heap", "container/list", "errors", "fmt", "io", "maps", "math"),
    *("math/big", "math/bits", "math/cmplx", "math/rand", "os", "regexp", "slices", "sort", "strconv"),
    *("strings", "sync", "text/tabwriter", "time", "unicode"),
)
_GO_CACHE = ".cache/go-build"  # where Go puts it, beneath the home directory
_GO_BUILD = ("{tool[go]}", "build", "-ldflags=-s -w", "-o", "main")

_LANGUAGES = (
    Language(PYTHON, ("py", "python3")),
    Language(PYTHON_SCIENTIFIC, install="numpy beside Whetstone (pip install numpy pandas scipy sympy)"),
    Language(
        name="c",
        aliases=("c11", "c17", "gnu17"),
        source="main.c",
        tools=("gcc",),
        install="gcc (apt install gcc)",
        compile=(("{tool[gcc]}", "-std=gnu17", *_GCC_FLAGS, "-o", "main", "{source}", "-lm"),),
        compile_space_mb=2048,
        keep=("main",),
        run=("./main",),
    ),
    _cpp("17", "cpp", "c++", "cxx", "c++17"),
    _cpp("20", "c++20"),
    Language(
        name="java",
        source="Main.java",
        tools=("java", "javac"),
        install="a JDK (apt install default-jdk-headless)",
        version=("-version",),
        reads=("/etc/java-*", "/etc/ssl/certs/java"),
        compile=(
            (
                *("{tool[javac]}", "-J-Xmx1g", "-J-XX:+UseSerialGC", "-J-XX:TieredStopAtLevel=1"),
                *("-J-XX:-UsePerfData", "-proc:none", "-nowarn", "-encoding", "UTF-8", "-d", ".", "{source}"),
            ),
        ),
        keep=("*.class",),
        run=(
            *("{tool[java]}", "-Xmx{memory_mb}m", "-Xss{stack_mb}m", "-XX:+UseSerialGC", "-XX:-UsePerfData"),
            *("-XX:ErrorFile=/dev/null", "-Xshare:auto", "-Dfile.encoding=UTF-8", "-cp", ".", "{main}"),
        ),
        # Where there is no /proc, the loader cannot tell which folder the runtime's libraries are beside.
        environment={"LD_LIBRARY_PATH": "{home}/lib"},
        extra_memory_mb=192,
        extra_cpu_s=0.5,
    ),
    Language(
        name="javascript",
        aliases=("js", "node", "nodejs"),
        source="main.js",
        tools=("node",),
        install="Node.js (apt install nodejs)",
        reads=("/usr/share/nodejs",),
        environment=_NODE_ENVIRONMENT,
        compile=(("{tool[node]}", "--check", "{source}"),),
        keep=("main.js",),
        run=("{tool[node]}", "--max-old-space-size={memory_mb}", "--stack-size={stack_kb}", "main.js"),
        extra_memory_mb=96,
        extra_cpu_s=0.1,
    ),
    Language(
        name="typescript",
        aliases=("ts",),
        needs_namespaces="its compiler starts a process, and waits for it without an end there",
        source="main.ts",
        tools=("tsc", "node"),
        install="the TypeScript compiler from 5.5 on, and Node.js (npm install -g typescript)",
        reads=("/usr/share/nodejs",),
        environment=_NODE_ENVIRONMENT,
        # Types are taken out, not checked: the types of Node's own modules are rarely installed.
        compile=(
            (
                *("{tool[node]}", "{tool[tsc]}", "--noCheck", "--noEmitOnError", "--skipLibCheck"),
                *("--target", "es2022", "--module", "commonjs", "--pretty", "false", "{source}"),
            ),
        ),
        keep=("main.js",),
        run=("{tool[node]}", "--max-old-space-size={memory_mb}", "--stack-size={stack_kb}", "main.js"),
        extra_memory_mb=96,
        extra_cpu_s=0.1,
    ),
    Language(
        name="go",
        aliases=("golang",),
        source="main.go",
        tools=("go",),
        install="Go (apt install golang-go)",
        version=("version",),
        reads=("/usr/share/go-*",),
        compile=((*_GO_BUILD, "{source}"),),
        keep=("main",),
        # From 1.20 on, Go comes without its compiled library.
        kit=Kit(
            files={
                "all.go": "package main\n"
                + "".join(f'import _ "{name}"\n' for name in _GO_PACKAGES)
                + "func main() {}\n"
            },
            # It wants all of its cache's folders, also the empty ones, which are not kept.
            commands=(
                (*_GO_BUILD, "all.go"),
                ("/bin/sh", "-c", f"for folder in {_GO_CACHE}/??; do : > $folder/kept; done"),
            ),
            keep=(f"{_GO_CACHE}/*/*",),
            # The cache itself must be one that can be written to.
            use=(("/bin/sh", "-c", f"mkdir -p {_GO_CACHE} && ln -s {{kit}}/{_GO_CACHE}/?? {_GO_CACHE}"),),
            unless="pkg/linux_*/fmt.a",
        ),
        run=("./main",),
        environment={
            **{"GOROOT": "{home}", "GOENV": "off", "GO111MODULE": "off", "CGO_ENABLED": "0"},
            **{"GOFLAGS": "", "GOTOOLCHAIN": "local"},
        },
        extra_memory_mb=16,
    ),
    Language(
        name="rust",
        aliases=("rs",),
        source="main.rs",
        tools=("rustc", "cc"),
        install="Rust and a C linker (apt install rustc gcc, or rustup)",
        compile=(
            (
                *("{tool[rustc]}", "--edition", "2021", "-O", "--cap-lints", "allow", "-C", "strip=symbols"),
                *("-C", "linker={tool[cc]}", "--color", "never", "-o", "main", "{source}"),
            ),
        ),
        compile_space_mb=8192,
        keep=("main",),
        run=("./main",),
    ),
    Language(
        name="bash",
        aliases=("sh", "shell"),
        source="main.sh",
        tools=("bash",),
        install="bash (apt install bash)",
        compile=(("{tool[bash]}", "-n", "{source}"),),
        keep=("main.sh",),
        run=("{tool[bash]}", "main.sh"),
        processes=True,
        needs_namespaces="its programs start processes, and that tier cannot account for them",
    ),
)

LANGUAGES = {language.name: language for language in _LANGUAGES}
_BY_ANY_NAME = {name: language for language in _LANGUAGES for name in (language.name, *language.aliases)}


def language_named(name: str, whose: str) -> Language:
    """The language called ``name`` or one of its aliases. Raises UserError that says whose name it is."""
    found = _BY_ANY_NAME.get(name.lower())
    if found is None:
        hint = did_you_mean(name.lower(), _BY_ANY_NAME)
        raise UserError(f"{whose} is in `{name}`{hint}; the judge runs {', '.join(LANGUAGES)}")
    return found


def language_of_file(name: str) -> str | None:
    """The language that a file's ending says its program is in (C++17 for .cpp); None for an unknown one."""
    ending = name.rpartition(".")[2] if "." in name else ""
    found = _BY_ANY_NAME.get({"cc": "cpp", "mjs": "js"}.get(ending, ending))
    return found.name if found else None


# One pass over the source, which may be hostile: no pattern here is tried twice over the same text.
_JAVA_TOKEN = re.compile(
    r"""/\*.*?(?:\*/|\Z)|//[^\n]*|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|[\w.]+|[{}(]""", re.DOTALL
)
_JAVA_MODIFIERS = {"final", "abstract", "strictfp", "sealed"}


def java_names(source: str) -> tuple[str, str]:
    """The file that a Java source must be in, and the class to start: the outer one that has ``main``."""
    words = [token for token in _JAVA_TOKEN.findall(source) if token[0] not in "/\"'"]
    package = words[1] + "." if words[:1] == ["package"] and len(words) > 1 else ""
    public, latest, start, depth, is_public = "", "", "", 0, False
    for before, word, after in zip(["", *words], words, [*words[1:], ""], strict=False):
        if word in {"class", "record", "enum", "interface"} and depth == 0:
            latest = after
            public = public or (after if is_public else "")
        elif (before, word, after) == ("void", "main", "("):
            start = start or latest
        depth += (word == "{") - (word == "}")
        is_public = word == "public" or (is_public and word in _JAVA_MODIFIERS)
    return f"{public or 'Main'}.java", package + (start or public or "Main")
