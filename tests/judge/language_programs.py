"""One program in each language that does what the first word of its input says.

``sum n``: read n integers, one a line, and print their sum. ``flood n``: print n lines of 100 characters.
``recurse n``: call n deep, print n. ``threads``: four of them add 1 to 1000, the sum is printed. ``crash``,
``spin`` and ``hog`` end badly: by an error, by the clock, by memory.
"""

_C = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
static long depth(long n) {
    volatile char pad[64];
    pad[0] = (char)n;
    return n ? 1 + depth(n - 1) + pad[0] - (char)n : 0;
}
static void *part(void *at) {
    long s = 0, k = (long)at;
    for (long i = 1; i <= 1000; i++) if (i % 4 == k) s += i;
    return (void *)s;
}
int main(void) {
    char mode[20]; long n = 0;
    if (scanf("%19s %ld", mode, &n) < 1) return 9;
    if (!strcmp(mode, "sum")) {
        long s = 0, x;
        while (n--) { if (scanf("%ld", &x) != 1) return 8; s += x; }
        printf("%ld\n", s);
    }
    else if (!strcmp(mode, "flood")) while (n--) printf("%0100d\n", 7);
    else if (!strcmp(mode, "recurse")) printf("%ld\n", depth(n));
    else if (!strcmp(mode, "threads")) {
        pthread_t t[4]; long s = 0; void *r;
        for (long k = 0; k < 4; k++) pthread_create(t + k, 0, part, (void *)k);
        for (int k = 0; k < 4; k++) { pthread_join(t[k], &r); s += (long)r; }
        printf("%ld\n", s);
    }
    else if (!strcmp(mode, "crash")) { volatile int *p = 0; *p = 1; }
    else if (!strcmp(mode, "spin")) for (volatile long i = 0;; i++) {}
    else for (;;) memset(malloc(1 << 20), 1, 1 << 20);
    return 0;
}
"""

_CPP = r"""
#include <bits/stdc++.h>
using namespace std;
static long depth(long n) {
    volatile char pad[64];
    pad[0] = (char)n;
    return n ? 1 + depth(n - 1) + pad[0] - (char)n : 0;
}
int main() {
    ios::sync_with_stdio(false); cin.tie(nullptr);
    string mode; long n = 0; cin >> mode >> n;
    if (mode == "sum") { long s = 0, x; while (n--) { cin >> x; s += x; } cout << s << '\n'; }
    else if (mode == "flood") while (n--) cout << string(99, '0') << "7\n";
    else if (mode == "recurse") cout << depth(n) << '\n';
    else if (mode == "threads") {
        vector<thread> all; vector<long> sums(4);
        for (int k = 0; k < 4; k++)
            all.emplace_back([&, k] { for (long i = 1; i <= 1000; i++) if (i % 4 == k) sums[k] += i; });
        for (auto &t : all) t.join();
        cout << accumulate(sums.begin(), sums.end(), 0L) << '\n';
    }
    else if (mode == "crash") throw runtime_error("broken");
    else if (mode == "spin") for (volatile long i = 0;; i = i + 1) {}
    else { vector<vector<char>> all; for (;;) all.emplace_back(1 << 20, 1); }
}
"""

_JAVA = r"""
import java.io.*;
import java.util.*;

public class Program {
    static long depth(long n) { return n == 0 ? 0 : 1 + depth(n - 1); }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        String[] words = in.readLine().trim().split(" ");
        long n = words.length > 1 ? Long.parseLong(words[1]) : 0;
        PrintWriter out = new PrintWriter(new BufferedWriter(new OutputStreamWriter(System.out)));
        switch (words[0]) {
            case "sum": {
                long s = 0;
                while (n-- > 0) s += Long.parseLong(in.readLine().trim());
                out.println(s);
                break;
            }
            case "flood": { String line = "0".repeat(99) + "7"; while (n-- > 0) out.println(line); break; }
            case "recurse": out.println(depth(n)); break;
            case "threads": {
                long[] sums = new long[4];
                List<Thread> all = new ArrayList<>();
                for (int k = 0; k < 4; k++) {
                    final int me = k;
                    Thread t = new Thread(() -> {
                        for (int i = 1; i <= 1000; i++) if (i % 4 == me) sums[me] += i;
                    });
                    all.add(t);
                    t.start();
                }
                for (Thread t : all) t.join();
                out.println(Arrays.stream(sums).sum());
                break;
            }
            case "crash": throw new IllegalStateException("broken");
            case "spin": while (true) { n++; }
            default: { List<byte[]> all = new ArrayList<>(); while (true) all.add(new byte[1 << 20]); }
        }
        out.flush();
    }
}
"""

_NODE = r"""
const lines = fs.readFileSync(0, 'utf8').split('\n');
const [mode, count] = lines[0].split(' ');
const n = Number(count);
function depth(n) { return n === 0 ? 0 : 1 + depth(n - 1); }
if (mode === 'sum') { let s = 0; for (let i = 1; i <= n; i++) s += Number(lines[i]); console.log(s); }
else if (mode === 'flood') console.log(Array(n).fill('7'.padStart(100, '0')).join('\n'));
else if (mode === 'recurse') console.log(depth(n));
else if (mode === 'crash') throw new Error('broken');
else if (mode === 'spin') for (;;) {}
else { const all = []; for (;;) all.push(new Array(100000).fill({}).map((_, i) => ({ i }))); }
"""

_GO = r"""
package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

func depth(n int) int {
	if n == 0 {
		return 0
	}
	return 1 + depth(n-1)
}

func main() {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	var mode string
	var n int
	fmt.Fscan(in, &mode, &n)
	switch mode {
	case "sum":
		s, x := 0, 0
		for ; n > 0; n-- {
			fmt.Fscan(in, &x)
			s += x
		}
		fmt.Fprintln(out, s)
	case "flood":
		line := strings.Repeat("0", 99) + "7\n"
		for ; n > 0; n-- {
			out.WriteString(line)
		}
	case "recurse":
		fmt.Fprintln(out, depth(n))
	case "threads":
		sums := make(chan int)
		for k := 0; k < 4; k++ {
			go func(k int) {
				s := 0
				for i := k; i <= 1000; i += 4 {
					s += i
				}
				sums <- s
			}(k)
		}
		fmt.Fprintln(out, <-sums+<-sums+<-sums+<-sums)
	case "crash":
		panic("broken")
	case "spin":
		for {
			n++
		}
	default:
		all := [][]byte{}
		for {
			block := make([]byte, 1<<20)
			for i := range block {
				block[i] = 1
			}
			all = append(all, block)
		}
	}
}
"""

_RUST = r"""
use std::io::{self, BufRead, Write};
use std::thread;

fn depth(n: u64) -> u64 {
    let pad = std::hint::black_box([n; 4]);
    if n == 0 { 0 } else { 1 + depth(n - 1) + pad[0] - n }
}

fn main() {
    let stdin = io::stdin();
    let mut lines = stdin.lock().lines().map(|line| line.unwrap());
    let first = lines.next().unwrap();
    let words: Vec<&str> = first.split_whitespace().collect();
    let n: u64 = words.get(1).map_or(0, |w| w.parse().unwrap());
    let mut out = io::BufWriter::new(io::stdout());
    match words[0] {
        "sum" => {
            let numbers = lines.take(n as usize).map(|l| l.parse::<i64>().unwrap());
            writeln!(out, "{}", numbers.sum::<i64>()).unwrap()
        }
        "flood" => for _ in 0..n { writeln!(out, "{:0100}", 7).unwrap() },
        "recurse" => writeln!(out, "{}", depth(n)).unwrap(),
        "threads" => {
            let part = |k| thread::spawn(move || (1..=1000u64).filter(|i| i % 4 == k).sum::<u64>());
            let all: Vec<_> = (0..4u64).map(part).collect();
            writeln!(out, "{}", all.into_iter().map(|t| t.join().unwrap()).sum::<u64>()).unwrap();
        }
        "crash" => panic!("broken"),
        "spin" => { let mut i = 0u64; loop { i = std::hint::black_box(i.wrapping_add(1)); } }
        _ => { let mut all = Vec::new(); loop { all.push(vec![1u8; 1 << 20]); } }
    }
}
"""

_BASH = r"""
read -r mode n

deeper() { if (( depth_left > 0 )); then (( depth_left -= 1 )); deeper; fi; }
case $mode in
    sum) s=0; while (( n-- > 0 )); do read -r x; (( s += x )); done; echo $s ;;
    flood) line=$(printf '%0100d' 7); while (( n-- > 0 )); do echo "$line"; done ;;
    recurse) depth_left=$n; deeper; echo "$n" ;;
    threads)
        for k in 0 1 2 3; do
            (seq 1 1000 | awk -v k=$k '$1 % 4 == k { s += $1 } END { print s }') &
        done | awk '{ s += $1 } END { print s }' ;;
    crash) false; exit 3 ;;
    spin) while :; do :; done ;;
    *) x=xxxxxxxxxxxxxxxx; while :; do x=$x$x; done ;;
esac
"""

_PERL = r"""
use strict;
no warnings 'recursion';
sub depth { my ($n) = @_; return $n ? 1 + depth($n - 1) : 0 }
my ($mode, $n) = split ' ', <STDIN>;
if ($mode eq 'sum') { my $s = 0; $s += <STDIN> while $n-- > 0; print "$s\n" }
elsif ($mode eq 'flood') { print '0' x 99, "7\n" while $n-- > 0 }
elsif ($mode eq 'recurse') { print depth($n), "\n" }
elsif ($mode eq 'crash') { die 'broken' }
elsif ($mode eq 'spin') { 1 while 1 }
else { my @all; push @all, 'x' x (1 << 20) while 1 }
"""

PROGRAMS = {
    "c": _C,
    "cpp17": _CPP,
    "cpp20": _CPP.replace("int main() {", "static_assert(std::bit_ceil(5u) == 8);\nint main() {"),
    "java": _JAVA,
    "javascript": "const fs = require('fs');\n" + _NODE,
    "typescript": "import * as fs from 'fs';\n" + _NODE.replace("depth(n)", "depth(n: number): number", 1),
    "go": _GO,
    "rust": _RUST,
    "perl": _PERL,
    "bash": _BASH,
}
WITHOUT_THREADS = {"javascript", "typescript", "perl"}
"""Languages whose programs usually have none."""
DEPTH = {"bash": 1_000, "java": 1_000_000, "javascript": 1_000_000, "typescript": 1_000_000}
"""How deep honest programs recurse, where that is not a million with a gigabyte."""
BROKEN = {
    "c": "int main(void) { return missing; }",
    "cpp17": "int main() { return missing; }",
    "cpp20": "int main() { return missing; }",
    "java": "public class Main { public static void main(String[] a) { missing(); } }",
    "javascript": "let missing = ;",
    "typescript": "let missing: = 3;",
    "go": "package main\nfunc main() { missing() }\n",
    "rust": "fn main() { missing(); }",
    "perl": "my $x = ;",
    "bash": "if missing; then",
}
