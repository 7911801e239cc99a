"""The languages that programs may use. An entry contains everything that the judge knows about a language.

``language.Language`` describes the fields.
"""

from __future__ import annotations

import re

from whetstone.core.errors import UserError, did_you_mean
from whetstone.judge.languages.language import CompilerKit, Language

# The source may be hostile, so one pass must do: no pattern here scans the same text twice.
_JAVA_TOKEN = re.compile(
    r"""/\*.*?(?:\*/|\Z)|//[^\n]*|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|[\w.]+|[{}(]""", re.DOTALL
)
_JAVA_MODIFIERS = {"final", "abstract", "strictfp", "sealed"}


def java_names(source: str) -> tuple[str, str]:
    """Return the file name that a Java source needs, and the class to run: the outer one that contains
    ``main``."""
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


PYTHON = "python"
PYTHON_SCIENTIFIC = "python-scientific"

# Node.js exits if its OpenSSL configuration exists but cannot be read.
_NODE_ENVIRONMENT = {"OPENSSL_CONF": "/dev/null"}
_C_MAIN = r"\bmain\s*\("
_C_BEGINS = r"\s*(?:#\s*(?:include|define|pragma)|using\s+namespace)\b"
_NODE_BEGINS = r"\s*(?:const|let|var|function|import|'use strict'|\"use strict\"|process\.|class)\b"
_NODE_READS = r"\bstdin\b|readFileSync|readline"
_NODE_SUM = "const [a, b] = fs.readFileSync(0, 'utf8').split(' ').map(Number);\nconsole.log(a + b);\n"
_NODE_OUT_OF_MEMORY = ("JavaScript heap out of memory",)
_GCC_FLAGS = ("-O2", "-fmax-errors=20", "-fno-diagnostics-show-caret", "-w")


def _cpp(standard: str, endings: tuple[str, ...], *aliases: str) -> Language:
    flags = ("{tool[g++]}", f"-std=gnu++{standard}", *_GCC_FLAGS)
    header = "bits/stdc++.h"
    return Language(
        name=f"cpp{standard}",
        display_name=f"C++{standard}",
        probe_source="#include <bits/stdc++.h>\n"
        "int main() { int a, b; std::cin >> a >> b; std::cout << a + b << '\\n'; }\n",
        endings=endings,
        aliases=aliases,
        fences=("cpp", "c++", "cc", "cxx", "c++17", "c++20", "cpp17", "cpp20"),
        program_pattern=_C_MAIN,
        first_line_pattern=_C_BEGINS,
        source="main.cpp",
        tools=("g++",),
        install="g++ (apt install g++)",
        compile=((*flags, "-I{kit}", "-o", "main", "{source}"),),
        compile_space_mb=2048,
        keep=("main",),
        kit=CompilerKit(
            files={"all.h": f"#include <{header}>\n", "bits/keep": ""},
            commands=((*flags, "-x", "c++-header", "all.h", "-o", f"{header}.gch"),),
            keep=(f"{header}.gch",),
        ),
        run=("./main",),
        out_of_memory_messages=("std::bad_alloc", "std::bad_array_new_length"),
    )


_GO_PACKAGES = (
    *("bufio", "bytes", "cmp", "container/heap", "container/list", "errors", "fmt", "io", "maps", "math"),
    *("math/big", "math/bits", "math/cmplx", "math/rand", "os", "regexp", "slices", "sort", "strconv"),
    *("strings", "sync", "text/tabwriter", "time", "unicode"),
)
_GO_CACHE = ".cache/go-build"  # Go's default, relative to the home directory
_GO_ERROR = "fatal error: runtime: "
_GO_OUT_OF_MEMORY = (f"{_GO_ERROR}out of memory", f"{_GO_ERROR}cannot allocate memory")
_GO_BUILD = ("{tool[go]}", "build", "-ldflags=-s -w", "-o", "main")

_LANGUAGES = (
    Language(
        name=PYTHON,
        display_name="Python",
        probe_source="print(sum(map(int, input().split())))\n",
        aliases=("py", "python3"),
        endings=("py",),
        fences=("py3", "python2"),
    ),
    Language(
        name=PYTHON_SCIENTIFIC,
        display_name="Python",
        probe_source="import numpy\nprint(numpy.array(input().split(), dtype=int).sum())\n",
        install="numpy (the extra `programs`, or an environment)",
    ),
    Language(
        name="c",
        display_name="C",
        probe_source="#include <stdio.h>\n"
        'int main(void) { int a, b; scanf("%d %d", &a, &b); printf("%d\\n", a + b); return 0; }\n',
        endings=("c",),
        aliases=("c11", "c17", "gnu17"),
        program_pattern=_C_MAIN,
        first_line_pattern=_C_BEGINS,
        source="main.c",
        tools=("gcc",),
        install="gcc (apt install gcc)",
        compile=(("{tool[gcc]}", "-std=gnu17", *_GCC_FLAGS, "-o", "main", "{source}", "-lm"),),
        compile_space_mb=2048,
        keep=("main",),
        run=("./main",),
    ),
    _cpp("17", ("cpp", "cc", "cxx", "c++"), "cpp", "c++", "cxx", "c++17"),
    _cpp("20", (), "c++20"),
    Language(
        name="java",
        display_name="Java",
        probe_source="import java.util.*;\npublic class Main {\n"
        "    public static void main(String[] args) {\n"
        "        Scanner in = new Scanner(System.in);\n"
        "        System.out.println(in.nextInt() + in.nextInt());\n    }\n}\n",
        endings=("java",),
        program_pattern=r"\bvoid\s+main\s*\(",
        first_line_pattern=r"\s*(?:import|package|public|final|class)\s+\w",
        source="Main.java",
        name_finder=java_names,
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
        # Without /proc, the loader cannot find the runtime's libraries relative to the executable.
        environment={"LD_LIBRARY_PATH": "{home}/lib"},
        out_of_memory_messages=("java.lang.OutOfMemoryError",),
        extra_memory_mb=192,
        extra_cpu_s=0.5,
    ),
    Language(
        name="javascript",
        display_name="JavaScript",
        probe_source="const fs = require('fs');\n" + _NODE_SUM,
        endings=("js", "mjs"),
        aliases=("js", "node", "nodejs"),
        fences=("mjs",),
        program_pattern=_NODE_READS,
        first_line_pattern=_NODE_BEGINS,
        source="main.js",
        tools=("node",),
        install="Node.js (apt install nodejs)",
        reads=("/usr/share/nodejs",),
        environment=_NODE_ENVIRONMENT,
        compile=(("{tool[node]}", "--check", "{source}"),),
        keep=("main.js",),
        run=("{tool[node]}", "--max-old-space-size={memory_mb}", "--stack-size={stack_kb}", "main.js"),
        out_of_memory_messages=_NODE_OUT_OF_MEMORY,
        extra_memory_mb=96,
        extra_cpu_s=0.1,
    ),
    Language(
        name="typescript",
        display_name="TypeScript",
        probe_source="import * as fs from 'fs';\n" + _NODE_SUM.replace("[a, b]", "[a, b]: number[]"),
        endings=("ts",),
        aliases=("ts",),
        program_pattern=_NODE_READS,
        first_line_pattern=_NODE_BEGINS,
        needs_namespaces="its compiler starts a process, and would wait for it forever",
        source="main.ts",
        tools=("tsc", "node"),
        install="the TypeScript compiler from 5.5 on, and Node.js (npm install -g typescript)",
        reads=("/usr/share/nodejs",),
        environment=_NODE_ENVIRONMENT,
        # Types are removed, not checked: the types of Node's own modules are rarely installed.
        compile=(
            (
                *("{tool[node]}", "{tool[tsc]}", "--noCheck", "--noEmitOnError", "--skipLibCheck"),
                *("--target", "es2022", "--module", "commonjs", "--pretty", "false", "{source}"),
            ),
        ),
        keep=("main.js",),
        run=("{tool[node]}", "--max-old-space-size={memory_mb}", "--stack-size={stack_kb}", "main.js"),
        out_of_memory_messages=_NODE_OUT_OF_MEMORY,
        extra_memory_mb=96,
        extra_cpu_s=0.1,
    ),
    Language(
        name="go",
        display_name="Go",
        probe_source='package main\n\nimport "fmt"\n\nfunc main() {\n\tvar a, b int\n\tfmt.Scan(&a, &b)\n'
        "\tfmt.Println(a + b)\n}\n",
        endings=("go",),
        aliases=("golang",),
        program_pattern=r"^func\s+main\s*\(",
        first_line_pattern=r"\s*package\s+main",
        source="main.go",
        tools=("go",),
        install="Go (apt install golang-go)",
        version=("version",),
        reads=("/usr/share/go-*",),
        compile=((*_GO_BUILD, "{source}"),),
        keep=("main",),
        # Since 1.20, Go is installed without its compiled standard library.
        kit=CompilerKit(
            files={
                "all.go": "package main\n"
                + "".join(f'import _ "{name}"\n' for name in _GO_PACKAGES)
                + "func main() {}\n"
            },
            # Go requires all folders of its cache, but empty folders are not stored.
            commands=(
                (*_GO_BUILD, "all.go"),
                ("/bin/sh", "-c", f"for folder in {_GO_CACHE}/??; do : > $folder/kept; done"),
            ),
            keep=(f"{_GO_CACHE}/*/*",),
            # Go writes to the cache folder itself, so only its contents are links.
            use=(("/bin/sh", "-c", f"mkdir -p {_GO_CACHE} && ln -s {{kit}}/{_GO_CACHE}/?? {_GO_CACHE}"),),
            unless="pkg/linux_*/fmt.a",
        ),
        run=("./main",),
        environment={
            **{"GOROOT": "{home}", "GOENV": "off", "GO111MODULE": "off", "CGO_ENABLED": "0"},
            **{"GOFLAGS": "", "GOTOOLCHAIN": "local"},
        },
        out_of_memory_messages=_GO_OUT_OF_MEMORY,
        extra_memory_mb=16,
    ),
    Language(
        name="rust",
        display_name="Rust",
        probe_source="fn main() {\n    let mut line = String::new();\n"
        "    std::io::stdin().read_line(&mut line).unwrap();\n"
        '    println!("{}", line.split_whitespace().map(|w| w.parse::<i64>().unwrap()).sum::<i64>());\n}\n',
        endings=("rs",),
        aliases=("rs",),
        program_pattern=r"\bfn\s+main\s*\(",
        first_line_pattern=r"\s*(?:use|fn|mod|extern|struct|const|static|impl|#!?\[)\b",
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
        out_of_memory_messages=("memory allocation of ",),
    ),
    Language(
        name="perl",
        display_name="Perl",
        probe_source="my ($left, $right) = split ' ', <STDIN>;\nprint $left + $right, \"\\n\";\n",
        aliases=("pl", "perl5"),
        endings=("pl",),
        program_pattern=r"<STDIN>|<>|^#!",
        first_line_pattern=r"#!|use\s+[\w:.]+|my\s|our\s|sub\s|while\s*\(",
        source="main.pl",
        tools=("perl",),
        install="Perl (apt install perl)",
        version=("-e", "print $^V"),
        reads=("/etc/perl", "/usr/share/perl*", "/usr/local/share/perl*"),
        compile=(("{tool[perl]}", "-c", "{source}"),),
        keep=("main.pl",),
        run=("{tool[perl]}", "main.pl"),
        out_of_memory_messages=("Out of memory!", "Out of memory in perl"),
    ),
    Language(
        name="bash",
        display_name="Bash",
        probe_source="read a b\necho $((a + b))\n",
        endings=("sh", "bash"),
        aliases=("sh", "shell"),
        fences=("zsh",),
        program_pattern=r"\bread\b|/dev/stdin|\$\(cat|^#!",
        first_line_pattern=r"#!|read\s|while\s+read|[A-Za-z_]\w*=\$\(",
        source="main.sh",
        tools=("bash",),
        install="bash (apt install bash)",
        compile=(("{tool[bash]}", "-n", "{source}"),),
        keep=("main.sh",),
        run=("{tool[bash]}", "main.sh"),
        processes=True,
        needs_namespaces="its programs start processes, which that tier cannot account for",
    ),
)

LANGUAGES = {language.name: language for language in _LANGUAGES}
# The tags of code blocks in any of them.
LANGUAGE_TAGS = frozenset[str]().union(*(language.tags for language in _LANGUAGES))
_BY_ENDING = {ending: language for language in _LANGUAGES for ending in language.endings}
_BY_ANY_NAME = {name: language for language in _LANGUAGES for name in (language.name, *language.aliases)}
# Names with versions, as sites of contests and datasets write them, in lowercase. The compiler of a language
# accepts its older standards too. Python 2 and newer standards are other languages.
_VERSION = r"(?: ?v?\d++(?:[.-]\d++)*+)*+"
_SPELLINGS = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"(?:gnu )?(?:c\+\+|g\+\+|cpp|cxx) ?(?:98|03|0x|11|1y|14|1z|17)?(?: \d+[.\d]+)?", "cpp17"),
        (r"(?:gnu )?(?:c\+\+|g\+\+|cpp|cxx) ?(?:2a|20)(?: \d+[.\d]+)?", "cpp20"),
        (r"(?:gnu )?c ?(?:89|90|99|11|17|18)?(?: \d+[.\d]+)?", "c"),
        (r"(?:c?python|pypy|py)[ -]?3(?:[.-]\d+)*(?:\.x)?", PYTHON),
        (rf"(?:open)?(?:java|jdk){_VERSION}", "java"),
        (rf"(?:node\.?js|node|javascript){_VERSION}", "javascript"),
        (rf"typescript{_VERSION}", "typescript"),
        (rf"go(?:lang)?{_VERSION}", "go"),
        (rf"rust{_VERSION}", "rust"),
        (rf"perl{_VERSION}", "perl"),
        (rf"bash{_VERSION}", "bash"),
    )
)
_MAX_NAME = 60
# A detail such as the compiler, and the number of bits. A detail that begins with a digit is a version.
_DETAIL = re.compile(r"\((?!\d)[^()]*\)|[ (-](?:32|64) ?bit.*|[()]")


def language_named(name: str, whose: str) -> Language:
    """Return the language with this name or alias, or with one that contains a version (``GNU C++14``).

    Raises UserError; ``whose`` says in the message what uses it.
    """
    found = _find(name)
    if found is None:
        hint = did_you_mean(name.lower(), _BY_ANY_NAME)
        raise UserError(f"{whose} is in `{name}`{hint}; the judge runs {', '.join(LANGUAGES)}")
    return found


def is_python(name: str) -> bool:
    """Return whether a language, by any name, is one that the fork-server runs."""
    found = _find(name)
    return found is not None and not found.run


def _find(name: str) -> Language | None:
    found = _BY_ANY_NAME.get(name.lower())
    if found is None:
        words = " ".join(_DETAIL.sub(" ", name.lower()[:_MAX_NAME]).split())
        found = next((LANGUAGES[each] for pattern, each in _SPELLINGS if pattern.fullmatch(words)), None)
    return found


def language_of_file(name: str) -> Language:
    """Return the language of a file by its ending (C++17 for .cpp). Raises UserError."""
    ending = name.rpartition(".")[2] if "." in name else ""
    if ending not in _BY_ENDING:
        known = ", ".join(f".{each}" for each in _BY_ENDING)
        raise UserError(
            f"{name}: its ending gives no language: name the language with --language (one of "
            f"{', '.join(LANGUAGES)}), or give a file that ends in one of {known}"
        )
    return _BY_ENDING[ending]
