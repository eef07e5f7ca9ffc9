"""The public headers as a generator of bindings reads them: after the preprocessor, without macros.

    bindings.py CC FOLDER LIBRARY

Reads gradscale.h with cffi, opens libgradscale.so and uses it; compares sizes with those asserted in
tests/unit/test_abi.c; and checks the rules at the top of base.h. Prints what is wrong.
"""
import glob
import re
import subprocess
import sys

import cffi

cc, include, library = sys.argv[1:4]
wrong = []


def check(what, holds):
    if not holds:
        wrong.append(what)


def declarations(*headers):
    """What our headers declare, without what the system's do."""
    source = "".join('#include "gradscale/%s.h"\n' % name for name in headers)
    output = subprocess.run([cc, "-E", "-DGS_API=", "-I" + include, "-xc", "-"], input=source, text=True,
                            check=True, stdout=subprocess.PIPE).stdout
    lines, ours = [], False
    for line in output.splitlines():
        if line.startswith("# "):
            ours = "/gradscale/" in line.split('"')[1]
        elif ours:
            lines.append(line)
    return re.sub(r"__attribute__\s*\(\(.*?\)\)\)?(?=\s*;)", "", "\n".join(lines))


# ---- a binding, used ----

text = declarations("gradscale")
ffi = cffi.FFI()
ffi.cdef(text)
lib = ffi.dlopen(library)

prototype = re.compile(r"^(?!typedef)([a-z][\w ]*?[\w*] ?\**)\b(gs_\w+)\(((?:[^()]|\([^()]*\))*)\)\s*;", re.M)
for _, name, _ in prototype.findall(text):
    check("%s is not in the library" % name, hasattr(lib, name))

check("GS_OK", lib.GS_OK == 0)
check("GS_NONE", lib.GS_NONE == 2**64 - 1)
check("GS_NO_LIMIT", lib.GS_NO_LIMIT == 2**63 - 1)
check("GS_GEMM_KC", lib.GS_GEMM_KC == 384)
check("the version", lib.GS_VERSION_NUMBER == lib.gs_version_number())

ctx, error = ffi.new("gs_context **"), ffi.new("gs_error *")
config = ffi.new("gs_config *", {"size": ffi.sizeof("gs_config"), "threads": 1})
check("a context", lib.gs_context_create(ctx, config, error) == lib.GS_OK)
config.size = 0
check("a config without a size", lib.gs_context_create(ffi.new("gs_context **"), config, error) == lib.GS_EVERSION
      and b"sizeof(gs_config)" in ffi.string(error.text))
data, name = ffi.new("float[]", [3, 4]), ffi.new("char[]", b"w")
tensor = lib.gs_tensor_source(data, 2, lib.GS_F32, name)
stats = ffi.new("gs_stats *")
check("a pass", lib.gs_tensors_scan(ctx[0], ffi.new("gs_tensor *", tensor), 1, stats) == lib.GS_OK
      and stats.sumsq == 25 and stats.bad_tensor == lib.GS_NONE)
lib.gs_context_free(ctx[0])

# ---- sizes ----

table = dict(re.findall(r"X\((gs_\w+), (\d+)\)", open("tests/unit/test_abi.c").read()))
everything = declarations("gradscale", "checkpoint", "data", "device", "io", "log", "mpi", "trace")
structs = set(re.findall(r"^(?:typedef )?struct (gs_\w+) \{", everything, re.M))
check("structs that test_abi.c does not know: %s" % sorted(structs - set(table)), structs <= set(table))
if ffi.sizeof("size_t") == 8:
    for name, size in table.items():
        if re.search(r"struct %s \{" % name, text):
            check("%s has %s bytes in C" % (name, size), ffi.sizeof(name) == int(size))

# ---- the rules of base.h ----

made_from_context = r"\bgs_(context|store|optim|tape|reducer|trainer) \*"
on_files = r"^gs_(checkpoint|saver)_" # of a trainer, but their errors are those of files
for result, name, arguments in prototype.findall(everything):
    arguments = [a.strip() for a in arguments.split(",")]
    has_error = arguments[-1] == "gs_error *error"
    check("%s: an error is the last argument" % name, has_error or "gs_error" not in " ".join(arguments[:-1]))
    if result.strip() == "gs_status" and name != "gs_context_create":
        context = any(re.search(made_from_context, a) and "**" not in a for a in arguments)
        check("%s takes %s" % (name, "a context and a gs_error" if has_error else "neither a context nor a gs_error"),
              has_error != context or re.search(on_files, name))
    for i, a in enumerate(arguments):
        check("%s: `out` is the first argument" % name, not re.search(r"\*+out$", a) or i == 0)
    # gs_NOUN_WHAT(const gs_NOUN *)
    only = re.fullmatch(r"const (gs_\w+) \*\w+", arguments[0])
    if only and len(arguments) == 1 and result.strip() != "void":
        check("%s tells something of a %s" % (name, only[1]), name.startswith(only[1] + "_"))
for name in re.findall(r"^typedef struct (gs_\w*config) \{\s*(?!\s*size_t size;)", everything, re.M):
    check("%s does not begin with its size" % name, False)
for name in re.findall(r"^#define (GS_\w+) +[^\s\\]", "".join(open(path).read() for path in glob.glob(include + "/gradscale/*.h")),
                       re.M):
    check("%s is a macro only" % name, name == "GS_API" or name.startswith("GS_VERSION_")
          or "GS_PRINTF" in name or re.search(r"^static const \w+ %s = " % name, everything, re.M))
check("a private name is shown", "gsi_" not in everything)

for line in wrong:
    print(line)
sys.exit(bool(wrong))
