"""The languages that programs may be in: all that the judge knows of one is its entry here.

See ``language.Language`` for what each field says.
"""

from __future__ import annotations

from whetstone.errors import UserError, did_you_mean
from whetstone.judge.languages.java import java_names
from whetstone.judge.languages.language import Kit, Language

PYTHON = "python"
PYTHON_SCIENTIFIC = "python-scientific"

# A configuration that is there but may not be read would end it.
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
        spoken=f"C++{standard}",
        proof="#include <bits/stdc++.h>\n"
        "int main() { int a, b; std::cin >> a >> b; std::cout << a + b << '\\n'; }\n",
        endings=endings,
        aliases=aliases,
        fences=("cpp", "c++", "cc", "cxx", "c++17", "c++20", "cpp17", "cpp20"),
        whole=_C_MAIN,
        begins=_C_BEGINS,
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
        out_of_memory=("std::bad_alloc", "std::bad_array_new_length"),
    )


_GO_PACKAGES = (
    *("bufio", "bytes", "cmp", "container/heap", "container/list", "errors", "fmt", "io", "maps", "math"),
    *("math/big", "math/bits", "math/cmplx", "math/rand", "os", "regexp", "slices", "sort", "strconv"),
    *("strings", "sync", "text/tabwriter", "time", "unicode"),
)
_GO_CACHE = ".cache/go-build"  # where Go puts it, beneath the home directory
_GO_REFUSED = "fatal error: runtime: "
_GO_OUT_OF_MEMORY = (f"{_GO_REFUSED}out of memory", f"{_GO_REFUSED}cannot allocate memory")
_GO_BUILD = ("{tool[go]}", "build", "-ldflags=-s -w", "-o", "main")

_LANGUAGES = (
    Language(
        name=PYTHON,
        spoken="Python",
        proof="print(sum(map(int, input().split())))\n",
        aliases=("py", "python3"),
        endings=("py",),
        fences=("py3", "python2"),
    ),
    Language(
        name=PYTHON_SCIENTIFIC,
        spoken="Python",
        proof="import numpy\nprint(numpy.array(input().split(), dtype=int).sum())\n",
        install="numpy (pip install 'whetstone-rl[programs]', or an environment)",
    ),
    Language(
        name="c",
        spoken="C",
        proof="#include <stdio.h>\n"
        'int main(void) { int a, b; scanf("%d %d", &a, &b); printf("%d\\n", a + b); return 0; }\n',
        endings=("c",),
        aliases=("c11", "c17", "gnu17"),
        whole=_C_MAIN,
        begins=_C_BEGINS,
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
        spoken="Java",
        proof="import java.util.*;\npublic class Main {\n    public static void main(String[] args) {\n"
        "        Scanner in = new Scanner(System.in);\n"
        "        System.out.println(in.nextInt() + in.nextInt());\n    }\n}\n",
        endings=("java",),
        whole=r"\bvoid\s+main\s*\(",
        begins=r"\s*(?:import|package|public|final|class)\s+\w",
        source="Main.java",
        places=java_names,
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
        out_of_memory=("java.lang.OutOfMemoryError",),
        extra_memory_mb=192,
        extra_cpu_s=0.5,
    ),
    Language(
        name="javascript",
        spoken="JavaScript",
        proof="const fs = require('fs');\n" + _NODE_SUM,
        endings=("js", "mjs"),
        aliases=("js", "node", "nodejs"),
        fences=("mjs",),
        whole=_NODE_READS,
        begins=_NODE_BEGINS,
        source="main.js",
        tools=("node",),
        install="Node.js (apt install nodejs)",
        reads=("/usr/share/nodejs",),
        environment=_NODE_ENVIRONMENT,
        compile=(("{tool[node]}", "--check", "{source}"),),
        keep=("main.js",),
        run=("{tool[node]}", "--max-old-space-size={memory_mb}", "--stack-size={stack_kb}", "main.js"),
        out_of_memory=_NODE_OUT_OF_MEMORY,
        extra_memory_mb=96,
        extra_cpu_s=0.1,
    ),
    Language(
        name="typescript",
        spoken="TypeScript",
        proof="import * as fs from 'fs';\n" + _NODE_SUM.replace("[a, b]", "[a, b]: number[]"),
        endings=("ts",),
        aliases=("ts",),
        whole=_NODE_READS,
        begins=_NODE_BEGINS,
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
        out_of_memory=_NODE_OUT_OF_MEMORY,
        extra_memory_mb=96,
        extra_cpu_s=0.1,
    ),
    Language(
        name="go",
        spoken="Go",
        proof='package main\n\nimport "fmt"\n\nfunc main() {\n\tvar a, b int\n\tfmt.Scan(&a, &b)\n'
        "\tfmt.Println(a + b)\n}\n",
        endings=("go",),
        aliases=("golang",),
        whole=r"^func\s+main\s*\(",
        begins=r"\s*package\s+main",
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
        out_of_memory=_GO_OUT_OF_MEMORY,
        extra_memory_mb=16,
    ),
    Language(
        name="rust",
        spoken="Rust",
        proof="fn main() {\n    let mut line = String::new();\n"
        "    std::io::stdin().read_line(&mut line).unwrap();\n"
        '    println!("{}", line.split_whitespace().map(|w| w.parse::<i64>().unwrap()).sum::<i64>());\n}\n',
        endings=("rs",),
        aliases=("rs",),
        whole=r"\bfn\s+main\s*\(",
        begins=r"\s*(?:use|fn|mod|extern|struct|const|static|impl|#!?\[)\b",
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
        out_of_memory=("memory allocation of ",),
    ),
    Language(
        name="perl",
        spoken="Perl",
        proof="my ($left, $right) = split ' ', <STDIN>;\nprint $left + $right, \"\\n\";\n",
        aliases=("pl", "perl5"),
        endings=("pl",),
        whole=r"<STDIN>|<>|^#!",
        begins=r"#!|use\s+[\w:.]+|my\s|our\s|sub\s|while\s*\(",
        source="main.pl",
        tools=("perl",),
        install="Perl (apt install perl)",
        version=("-e", "print $^V"),
        reads=("/etc/perl", "/usr/share/perl*", "/usr/local/share/perl*"),
        compile=(("{tool[perl]}", "-c", "{source}"),),
        keep=("main.pl",),
        run=("{tool[perl]}", "main.pl"),
        out_of_memory=("Out of memory!", "Out of memory in perl"),
    ),
    Language(
        name="bash",
        spoken="Bash",
        proof="read a b\necho $((a + b))\n",
        endings=("sh", "bash"),
        aliases=("sh", "shell"),
        fences=("zsh",),
        whole=r"\bread\b|/dev/stdin|\$\(cat|^#!",
        begins=r"#!|read\s|while\s+read|[A-Za-z_]\w*=\$\(",
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
_BY_ENDING = {ending: language for language in _LANGUAGES for ending in language.endings}
_BY_ANY_NAME = {name: language for language in _LANGUAGES for name in (language.name, *language.aliases)}


def language_named(name: str, whose: str) -> Language:
    """The language called ``name`` or one of its aliases. Raises UserError that says whose name it is."""
    found = _BY_ANY_NAME.get(name.lower())
    if found is None:
        hint = did_you_mean(name.lower(), _BY_ANY_NAME)
        raise UserError(f"{whose} is in `{name}`{hint}; the judge runs {', '.join(LANGUAGES)}")
    return found


def language_of_file(name: str) -> Language:
    """The language that a file's ending says its program is in (C++17 for .cpp). Raises UserError."""
    ending = name.rpartition(".")[2] if "." in name else ""
    if ending not in _BY_ENDING:
        known = ", ".join(f".{each}" for each in _BY_ENDING)
        raise UserError(
            f"{name}: nothing says which language this is in: name it with --language (one of "
            f"{', '.join(LANGUAGES)}), or give a file that ends in one of {known}"
        )
    return _BY_ENDING[ending]
