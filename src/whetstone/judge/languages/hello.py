"""The smallest honest program in each language: a proof that its tools work here."""

from __future__ import annotations

SUM_INPUT, SUM_OUTPUT = "17 25\n", "42\n"

_C_SUM = 'int main(void) { int a, b; scanf("%d %d", &a, &b); printf("%d\\n", a + b); return 0; }\n'
_CPP_SUM = (
    "#include <bits/stdc++.h>\nint main() { int a, b; std::cin >> a >> b; std::cout << a + b << '\\n'; }\n"
)
_NODE_SUM = "const [a, b] = fs.readFileSync(0, 'utf8').split(' ').map(Number);\nconsole.log(a + b);\n"
SUM_OF_TWO = {
    "python": "print(sum(map(int, input().split())))\n",
    "python-scientific": "import numpy\nprint(numpy.array(input().split(), dtype=int).sum())\n",
    "c": "#include <stdio.h>\n" + _C_SUM,
    "cpp17": _CPP_SUM,
    "cpp20": _CPP_SUM,
    "java": "import java.util.*;\npublic class Main {\n    public static void main(String[] args) {\n"
    "        Scanner in = new Scanner(System.in);\n        System.out.println(in.nextInt() + in.nextInt());\n"
    "    }\n}\n",
    "javascript": "const fs = require('fs');\n" + _NODE_SUM,
    "typescript": "import * as fs from 'fs';\n" + _NODE_SUM.replace("[a, b]", "[a, b]: number[]"),
    "go": 'package main\n\nimport "fmt"\n\nfunc main() {\n\tvar a, b int\n\tfmt.Scan(&a, &b)\n'
    "\tfmt.Println(a + b)\n}\n",
    "rust": "fn main() {\n    let mut line = String::new();\n"
    "    std::io::stdin().read_line(&mut line).unwrap();\n"
    '    println!("{}", line.split_whitespace().map(|w| w.parse::<i64>().unwrap()).sum::<i64>());\n}\n',
    "bash": "read a b\necho $((a + b))\n",
}
"""A program in each language that reads two integers and prints their sum."""
