#!/usr/bin/env python3
"""faults.py PROGRAM IOFAULT [SHARE[:PART]]: every system call on files fails once, in every command that has files.

For each command, each kind of call, each n and each error that the call can have: run it with that fault, then
look. SHARE 20 takes every 20th fault, PART 0 to 19 says which: all parts are all faults. What must hold (see `judge`):

  (1) no crash, no hang; an exit code that is not 0 comes with an error message
  (2) signals (EINTR) and short counts change nothing at all
  (3) exit code 0: all files are what they are without a fault
  (4) what was complete before is complete still, and the next --resume ends with the reference's bits
"""
import hashlib, os, shutil, subprocess, sys, tempfile

gs, iofault = (os.path.abspath(p) for p in sys.argv[1:3])
share, _, part = (sys.argv[3] if len(sys.argv) > 3 else "1").partition(":")
share, part = int(share), int(part or 0)
CALLS = ["open", "opendir", "readdir", "read", "write", "fsync", "rename", "close", "mmap", "stat", "truncate", "link",
         "unlink", "mkdir", "flock"]
ERRORS = {"open": ["EIO", "EINTR", "ENOSPC", "EACCES", "ENOMEM"], "opendir": ["EIO", "EINTR"], "readdir": ["EIO"],
          "read": ["EIO", "EINTR", "short"], "write": ["EIO", "ENOSPC", "EDQUOT", "EINTR", "short"],
          "fsync": ["EIO", "ENOSPC", "EDQUOT", "EINTR"], "rename": ["EIO", "ENOSPC", "EACCES"], "close": ["EIO", "EINTR"],
          "mmap": ["ENOMEM"], "stat": ["EIO"], "truncate": ["EIO"], "link": ["EIO", "ENOSPC"], "unlink": ["EIO"],
          "mkdir": ["EIO", "ENOSPC"], "flock": ["EINTR"]}
HARMLESS = {"EINTR", "short"}
JOB = ["--model", "gpt", "--layers", "1", "--width", "8", "--heads", "1", "--context", "8", "--data", "text", "--batch",
       "1", "--valid-items", "2", "--threads", "1", "--steps", "12", "--valid-every", "2", "--checkpoint-every", "2",
       "--keep", "2", "--schedule", "constant", "--warmup", "0"]
OUT = ["--checkpoint", "run", "--log", "run/log", "--csv", "run/csv", "--tensorboard", "run/tb", "--report", "run/r.html"]
CMP = JOB[:JOB.index("--checkpoint-every")] + ["--schedule", "constant", "--warmup", "0", "--runs", "fp16,fp32", "--output",
                                               "cmp"]
LAST = "run/step-00000012.safetensors"

def run(command, cwd, fault=None, counts=None):
    words = [iofault, "--root", cwd] + (["--counts", counts] if counts else []) + \
            (["--fail", fault] if fault else []) + ["--", gs] + command
    try:
        r = subprocess.run(words, cwd=cwd, capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return 124, b""
    return r.returncode, r.stderr

def plain(command, cwd):
    return subprocess.run([gs] + command, cwd=cwd, capture_output=True, timeout=60, stdin=subprocess.DEVNULL)

def digest(path):
    try:
        return hashlib.sha256(open(path, "rb").read()).hexdigest()
    except OSError:
        return None

def steps_of(log):
    """Of a log, the losses by step, what resumes made void left out."""
    import json
    steps = {}
    for line in open(log, "rb"):
        e = json.loads(line)
        if e.get("event") == "resume":
            steps = {k: v for k, v in steps.items() if k <= e["step"]}
        elif "event" not in e:
            steps[e["step"]] = e["loss"]
    return steps

top = tempfile.mkdtemp(prefix="gs_faults_")
failures, faults = [], 0

def folder(name, base=None):
    path = os.path.join(top, name)
    shutil.rmtree(path, ignore_errors=True)
    if base:
        shutil.copytree(base, path, symlinks=True)
    else:
        os.mkdir(path)
        shutil.copy("README.md", os.path.join(path, "text"))
    return path

def goes_on(cwd):
    """Another start, without a fault, ends as the reference does."""
    r = plain(["train", "--resume", "--checkpoint", "run", "--quiet"], cwd)
    if r.returncode == 2 and b"neither a checkpoint nor" in r.stderr:
        shutil.rmtree(os.path.join(cwd, "run"), ignore_errors=True)
        r = plain(["train", "--quiet"] + JOB + OUT, cwd)
    if r.returncode != 0:
        return "the next start: exit code %d, %s" % (r.returncode, r.stderr.decode()[:200])
    if digest(os.path.join(cwd, LAST)) != reference[LAST]:
        return "the next start ends with other bits"
    return None

def judge_train(cwd, code, how):
    if code == 0 and digest(os.path.join(cwd, LAST)) != reference[LAST]:
        return "exit code 0, but the last checkpoint differs"
    if code == 0 and os.path.exists(os.path.join(cwd, "run/log")) and steps_of(os.path.join(cwd, "run/log")) != reference["steps"]:
        return "exit code 0, but the log differs"
    if code == 0 and not os.path.exists(os.path.join(cwd, "run/r.html")):
        return "exit code 0, but there is no report"
    left = [f for f in os.listdir(os.path.join(cwd, "run")) if f.endswith(".part")] if os.path.isdir(os.path.join(cwd, "run")) else []
    if left:
        return "left behind: %s" % left
    return goes_on(cwd)

def judge_resume(cwd, code, how):
    old = open(os.path.join(half, "run/log"), "rb").read()
    if not open(os.path.join(cwd, "run/log"), "rb").read().startswith(old):
        return "lines of the old log are lost"
    if digest(os.path.join(cwd, "run/step-00000010.safetensors")) not in (None, digest(os.path.join(half, "run/step-00000010.safetensors"))):
        return "an old checkpoint is damaged"
    return judge_train(cwd, code, how)

def judge_page(path):
    def judge(cwd, code, how):
        now = open(os.path.join(cwd, path), "rb").read()
        if code != 0 and now != b"old\n":
            return "exit code %d, and the old page is gone" % code
        if code == 0 and b"</html>" not in now:
            return "exit code 0 without a page"
        names = [n for n in os.listdir(os.path.join(cwd, os.path.dirname(path))) if n.endswith(".part")]
        return "left behind: %s" % names if names else None
    return judge

def judge_compare(cwd, code, how):
    if code == 0 and not os.path.exists(os.path.join(cwd, "cmp/report.html")):
        return "exit code 0 without a report"
    r = plain(["compare", "--quiet", "--resume"] + CMP, cwd)
    if r.returncode == 2 and b"holds no job.conf" in r.stderr: # it had not begun
        r = plain(["compare", "--quiet"] + CMP, cwd)
    if r.returncode != 0:
        return "the next start: exit code %d, %s" % (r.returncode, r.stderr.decode()[:200])
    return None

def all_faults(command, counts):
    for call in CALLS:
        for error in ERRORS[call]:
            for n in range(1, counts[call] + 1):
                yield "%s:%d:%s" % (call, n, error)

def test(name, base, command, judge):
    global faults
    cwd = folder("count", base)
    file = os.path.join(top, "counts")
    code, err = run(command, cwd, counts=file)
    if code != 0:
        failures.append("%s: without a fault: exit code %d: %s" % (name, code, err.decode()[:300]))
        return
    counts = {k: int(v) for k, v in (line.split() for line in open(file))}
    done = failed = 0
    for i, fault in enumerate(all_faults(command, counts)):
        if i % share != part:
            continue
        cwd = folder("work", base)
        code, err = run(command, cwd, fault)
        how = fault.split(":")[2]
        why = None
        if code not in (0, 1, 2):
            why = "exit code %d: %s" % (code, err.decode(errors="replace")[:300])
        elif code != 0 and b"gradscale: " not in err:
            why = "exit code %d without an error message" % code
        elif how in HARMLESS and code != 0 and b"writing to standard output failed" not in err: # stdio's own, and told
            why = "exit code %d: %s" % (code, err.decode(errors="replace")[:200])
        why = why or judge(cwd, code, how)
        done += 1
        if why:
            failed += 1
            failures.append("%s, %s: %s" % (name, fault, why))
    faults += done
    print("%-8s %5d calls, %5d faults, %d failed" % (name, sum(counts.values()), done, failed), flush=True)

# ---- what is run ----

whole = folder("whole")
r = plain(["train", "--quiet"] + JOB + OUT, whole)
assert r.returncode == 0, r.stderr
reference = {LAST: digest(os.path.join(whole, LAST)), "steps": steps_of(os.path.join(whole, "run/log"))}
half = folder("half")
# The options of the whole run, and the state that a kill after step 10 leaves.
r = plain(["train", "--quiet"] + JOB + OUT, half)
os.unlink(os.path.join(half, LAST))
shutil.rmtree(os.path.join(half, "run/tb"))
log = open(os.path.join(half, "run/log"), "rb").read().splitlines(True)
keep = [l for l in log if not any(b'"step":%d,' % k in l for k in (11, 12)) and b'"event":"end"' not in l]
open(os.path.join(half, "run/log"), "wb").write(b"".join(keep))
os.unlink(os.path.join(half, "run/r.html"))
page = folder("page", half)
open(os.path.join(page, "page.html"), "w").write("old\n")
for name in ("grads.safetensors", "f4.npy", "stored.npz", "deflated.npz"):
    shutil.copy(os.path.join("tests/data", name), page)

test("train", folder("fresh"), ["train", "--quiet"] + JOB + OUT, judge_train)
test("resume", half, ["train", "--quiet", "--resume", "--checkpoint", "run"], judge_resume)
test("report", page, ["report", "run/log", "--output", "page.html"], judge_page("page.html"))
test("advise", page, ["advise", "grads.safetensors", "f4.npy", "stored.npz", "deflated.npz", "--report", "page.html"],
     judge_page("page.html"))
test("replay", page, ["replay", "run/log", "--policy", "pytorch"], lambda cwd, code, how: None)
def judge_export(cwd, code, how):
    now = open(os.path.join(cwd, "weights.safetensors"), "rb").read()
    if now not in (b"old\n", weights): # the new one also where only its folder could not be synced, which is told
        return "exit code %d, and the file is neither the old one nor the new one" % code
    return "exit code 0 with the old file" if code == 0 and now == b"old\n" else None

open(os.path.join(page, "weights.safetensors"), "w").write("old\n")
EXPORT = ["export", "--threads", "1", "run/step-00000010.safetensors", "weights.safetensors"]
once = folder("once", page)
assert plain(EXPORT, once).returncode == 0
weights = open(os.path.join(once, "weights.safetensors"), "rb").read()
test("export", page, EXPORT, judge_export)
test("eval", page, ["eval", "--threads", "1", "--items", "4", "run/step-00000010.safetensors"],
     lambda cwd, code, how: None)
test("compare", folder("fresh"), ["compare", "--quiet"] + CMP,
     judge_compare)
ended = folder("ended")
assert plain(["compare", "--quiet"] + CMP, ended).returncode == 0
logs = ["cmp/fp16-seed-1.jsonl", "cmp/fp32-seed-1.jsonl"]

def judge_again(cwd, code, how):
    if any(digest(os.path.join(cwd, log)) != digest(os.path.join(ended, log)) for log in logs):
        return "exit code %d, and a run that had ended was begun anew" % code
    return judge_compare(cwd, code, how)

test("again", ended, ["compare", "--quiet", "--resume"] + CMP, judge_again)
shutil.rmtree(top, ignore_errors=True)
for line in failures[:40]:
    print("FAILED " + line)
print("%d faults, %d of them told wrong or lost something" % (faults, len(failures)))
sys.exit(1 if failures else 0)
