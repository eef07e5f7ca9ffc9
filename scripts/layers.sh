#!/bin/sh
# The dependency law: an #include points up this list only, never down. Run it in the root.
#
#   src/L, include/gradscale/L.h    layers up to L, in public only public headers
#   cli, mpi, examples              public headers and their own
#   device                          up to optim; nobody knows it but cli and examples
#   zlib, libpng, libjpeg           io, train and cli;  jansson: cli;  mpi.h: mpi;  libtorch: torch*.hpp
#   L.hpp                           C++ of L.h, for no file in C
cd "${1:-.}" || exit 2
find include src cli mpi examples -name '*.[ch]' -o -name '*.[ch]pp' 2>/dev/null | sort |
xargs grep -nE '^[[:space:]]*#[[:space:]]*include' /dev/null |
awk -F: '
BEGIN {
    n = split("base num kernel scaler optim comm engine io train", order, " ")
    for (i = 1; i <= n; i++)
        rank[order[i]] = i
    split("context tensor exponents gemm", parts_of_kernel, " ") # their other public headers
    for (i in parts_of_kernel)
        rank[parts_of_kernel[i]] = rank["kernel"]
    rank["gradscale"] = rank["torch"] = rank["torch_grads"] = rank["engine"]
    rank["trace"] = rank["tokenizer"] = rank["io"]
    rank["data"] = rank["checkpoint"] = rank["infer"] = rank["log"] = rank["train"]
    rank["mpi"] = n + 1 # nobody may know it but cli and examples
    rank["device"] = n + 2 # nor this; and it may know libgradscale up to optim
    most["device"] = rank["optim"]
    split("zlib.h:io jansson.h:cli png.h:io jpeglib.h:io mpi.h:mpi", pairs, " ")
    for (i in pairs) {
        split(pairs[i], pair, ":")
        least[pair[1]] = pair[2]
    }
}
function stem(file) {
    sub(/\.hp*$/, "", file)
    return file
}
function may_know(layer) {
    return layer == from || rank[layer] <= (from in most ? most[from] : rank[from])
}
function wrong(why) {
    printf "%s:%d: %s: %s\n", $1, $2, target, why
    bad = 1
}
{
    target = $0
    sub(/^[^"<]*["<]/, "", target)
    sub(/[">].*/, "", target)
    parts = split(target, part, "/")
    split($1, path, "/")
    public = path[1] == "include"
    from = path[1] == "src" ? path[2] : public ? stem(path[3]) : path[1]
    outside = from == "cli" || from == "mpi" || from == "examples"

    if (!outside && !(from in rank)) {
        wrong(from " is not in the list of layers")
    } else if ($0 !~ /"/ && part[1] != "gradscale") {            # a system header
        if (target in least && from != least[target] &&
            !(least[target] == "io" && (from == "train" || from == "cli")))
            wrong("only " least[target] " may need it")
        if (target ~ /^(torch|ATen|c10)\// && from !~ /^torch/ && from != "examples")
            wrong("only torch.hpp may need it")
    } else if (part[1] == "gradscale") {
        layer = stem(part[2])
        if (target ~ /hpp$/ && $1 !~ /pp$/)
            wrong("it is C++")
        else if (!(layer in rank))
            wrong("no such layer")
        else if (!outside && !may_know(layer))
            wrong(from " must not know " layer)
    } else if (outside) {
        if (part[1] == ".." || parts > 1 && part[1] != from)
            wrong(from " may include only gradscale/*.h and its own headers")
    } else if (public) {
        wrong("a public header may include only public ones")
    } else if (!(part[1] in rank) || parts < 2 || target ~ /(^|\/)\.\.?\//) {
        wrong("say which layer it is of: \"layer/[folder/]file.h\"")
    } else if (!may_know(part[1])) {
        wrong(from " must not know " part[1])
    }
}
END { exit bad }'
