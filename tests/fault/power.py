#!/usr/bin/env python3
"""power.py PROGRAM IOFAULT [SHARE[:PART]]: the power fails at every point of a run, and the run goes on.

The changes that a run makes to its folder are recorded (iofault --record). Then, for every point of the record, the
states that a disk may be in: all that was synced, and of the rest nothing; all of it; files at their full length with
zeros where data never arrived; the last write torn in the middle; names that came to the disk before their data. From
each state a --resume must be possible, and must end with the bits of the run that was not stopped.

A file's data are safe after its fsync, a name (made, renamed, removed) after the fsync of its folder or of the file.
"""
import hashlib, json, os, shutil, subprocess, sys, tempfile

gs, iofault = (os.path.abspath(p) for p in sys.argv[1:3])
share, _, part = (sys.argv[3] if len(sys.argv) > 3 else "1").partition(":")
share, part = int(share), int(part or 0)
JOB = ["--model", "gpt", "--layers", "1", "--width", "8", "--heads", "1", "--context", "8", "--data", "text", "--batch", "1",
       "--valid-items", "2", "--threads", "1", "--steps", "12", "--valid-every", "2", "--checkpoint-every", "2", "--keep", "2",
       "--schedule", "constant", "--warmup", "0", "--checkpoint", "run", "--log", "run/log", "--csv", "run/csv", "--report",
       "run/r.html"]
LAST = "run/step-00000012.safetensors"
top = tempfile.mkdtemp(prefix="gs_power_")

def digest(path):
    return hashlib.sha256(open(path, "rb").read()).hexdigest()

def fresh(name):
    path = os.path.join(top, name)
    shutil.rmtree(path, ignore_errors=True)
    os.mkdir(path)
    shutil.copy("README.md", os.path.join(path, "text"))
    return path

# ---- the disk ----

class File:
    def __init__(self):
        self.data, self.safe = bytearray(), b""   # what the program sees; what is on the disk for certain

class Disk:
    def __init__(self):
        self.names, self.safe = {}, {}            # path -> File or None, a folder; those that are certain

    def apply(self, e):
        path, call = e["path"], e["call"]
        if call == "mkdir":
            self.names[path] = None
        elif call == "open":
            f = self.names.get(path)
            if f is None:
                f = self.names[path] = File()
            if e["truncate"]:
                f.data = bytearray()
        elif call == "write" and path in self.names:
            f, b, at = self.names[path], bytes.fromhex(e["bytes"]), e["at"]
            f.data.extend(bytes(max(0, at - len(f.data))))
            f.data[at:at + len(b)] = b
        elif call == "truncate" and path in self.names:
            f = self.names[path]
            del f.data[e["length"]:]
            f.data.extend(bytes(e["length"] - len(f.data)))
        elif call == "rename" and path in self.names:
            self.names[e["to"]] = self.names.pop(path)
        elif call == "link" and path in self.names:
            self.names[e["to"]] = self.names[path]
        elif call == "unlink":
            self.names.pop(path, None)
        elif call == "fsync":
            f = self.names.get(path)
            if isinstance(f, File):
                f.safe = bytes(f.data)
                self.safe[path] = f               # journals bring the name with the file
            else:                                 # a folder: the names in it, and no others
                inside = lambda p: os.path.dirname(p) == path
                self.safe = {p: f for p, f in self.safe.items() if not inside(p)}
                self.safe.update({p: f for p, f in self.names.items() if inside(p)})
                if path in self.names:
                    self.safe[path] = None

    def states(self, last):
        """What may be there after the power failed: lists of (path, bytes or None)."""
        names = [("certain", self.safe), ("all names", self.names)]
        for which, listing in names:
            for how in ("synced", "written", "zeros", "torn"):
                out = []
                for path, f in listing.items():
                    if f is None:
                        out.append((path, None))
                        continue
                    data = bytes(f.data)
                    if how == "synced" and f.safe != data:
                        data = f.safe
                    elif how == "zeros" and f.safe != data:
                        same = os.path.commonprefix([f.safe, data])
                        data = same + bytes(len(data) - len(same))
                    elif how == "torn" and f.safe != data:
                        data = data[:len(f.safe) + (len(data) - len(f.safe)) // 2] if len(data) > len(f.safe) else data
                    out.append((path, data))
                yield "%s, %s" % (which, how), out

# ---- the run, and its record ----

whole = fresh("whole")
record = os.path.join(top, "record")
r = subprocess.run([iofault, "--root", whole, "--record", record, "--", gs, "train", "--quiet"] + JOB, cwd=whole,
                   capture_output=True)
assert r.returncode == 0, r.stderr
want = digest(os.path.join(whole, LAST))
events = [json.loads(line) for line in open(record)]

def go_on(state):
    cwd = fresh("work")
    for path, data in sorted(state, key=lambda s: s[0]):
        here = path.replace(whole, cwd, 1)
        if data is None:
            os.makedirs(here, exist_ok=True)
            continue
        os.makedirs(os.path.dirname(here), exist_ok=True)
        with open(here, "wb") as f:
            f.write(data)
    run = os.path.join(cwd, "run")
    begun = os.path.isdir(run) and any(n == "job.conf" or n.startswith("step-") for n in os.listdir(run))
    args = ["train", "--quiet"] + (["--resume", "--checkpoint", "run"] if begun else JOB)
    r = subprocess.run([gs] + args, cwd=cwd, capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
    if r.returncode != 0:
        return "exit code %d: %s" % (r.returncode, r.stderr.decode(errors="replace")[:300])
    if digest(os.path.join(cwd, LAST)) != want:
        return "other bits at the end"
    return None

disk, seen, points, failures, k, tried = Disk(), {}, 0, [], 0, 0
for i, e in enumerate(events):
    disk.apply(e)
    for name, state in disk.states(e):
        key = hashlib.sha256(repr(sorted(state, key=lambda s: s[0])).encode()).digest()
        points += 1
        if key in seen:
            continue
        k += 1
        seen[key] = True
        if k % share != part:
            continue
        tried += 1
        why = go_on(state)
        if why:
            failures.append("after call %d (%s %s), %s: %s" % (i, e["call"], os.path.basename(e["path"]), name, why))
shutil.rmtree(top, ignore_errors=True)
for line in failures[:30]:
    print("FAILED " + line)
print("%d calls, %d states of the disk, %d of them different, %d tried, %d without a way on" %
      (len(events), points, len(seen), tried, len(failures)))
sys.exit(1 if failures else 0)
