#!/usr/bin/env python3
"""coverage.py BUILD [FOLDER]: what the suites have run of src/, mpi/ and cli/, by folder, from gcov's counts in BUILD.
With FOLDER: also each branch in it that is left.

`make coverage` builds with them, runs every suite and ends with this table. A branch that no test can take is marked
on its line, with the reason: `/* uncovered: WHY */`. Of the branches never taken, `marked` counts those on such lines,
at most 1 in 100 of a folder, and `left` the others."""
import gzip, json, os, subprocess, sys
from collections import defaultdict

build = sys.argv[1]
lines, branches, marks = {}, {}, defaultdict(int)
notes = []
for folder, _, names in os.walk(build):
    notes += [os.path.join(folder, n) for n in names if n.endswith(".gcda")]
for note in notes:
    out = subprocess.run(["gcov", "--json-format", "--stdout", "-b", "-c", note], capture_output=True).stdout
    for document in out.decode().splitlines():
        for file in json.loads(document)["files"]:
            name = os.path.normpath(file["file"])
            if not name.startswith(("src/", "mpi/", "cli/")):
                continue
            for line in file["lines"]:
                key = (name, line["line_number"])
                lines[key] = lines.get(key, 0) + line["count"]
                for i, branch in enumerate(line["branches"]):
                    if not branch["throw"]:
                        branches[key + (i,)] = branches.get(key + (i,), 0) + branch["count"]

marked = set()
for name in {k[0] for k in lines}:
    for number, text in enumerate(open(name, errors="replace"), 1):
        if "/* uncovered: " in text:
            marked.add((name, number))

def room(name):
    parts = name.split("/")
    return "/".join(parts[:2]) if parts[0] == "src" else parts[0]

table = defaultdict(lambda: [0, 0, 0, 0, 0])
for (name, number), count in lines.items():
    for key in (room(name), "all"):
        table[key][0] += 1
        table[key][1] += count > 0
for (name, number, _), count in branches.items():
    for key in (room(name), "all"):
        table[key][2] += 1
        table[key][3] += count > 0
        table[key][4] += count == 0 and (name, number) in marked
print("%-14s %8s %7s %9s %7s %7s %7s" % ("folder", "lines", "run", "branches", "taken", "marked", "left"))
for key in sorted(table, key=lambda k: (k == "all", k)):
    l, lr, b, br, m = table[key]
    print("%-14s %8d %6.1f%% %9d %6.1f%% %7d %7d" % (key, l, 100 * lr / max(l, 1), b, 100 * br / max(b, 1), m, b - br - m))
if len(sys.argv) > 2:
    for name, number, i in sorted(k for k, c in branches.items() if c == 0 and k[0].startswith(sys.argv[2])):
        if (name, number) not in marked:
            print("%s:%d branch %d" % (name, number, i))
too_many = [k for k, (_, _, b, _, m) in table.items() if m > b / 100]
if too_many:
    sys.exit("marked more than 1 in 100: " + ", ".join(sorted(too_many)))
