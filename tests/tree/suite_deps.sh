#!/bin/sh
# scripts/deps.sh on machines that are not this one: its tools are stand-ins that write down how they
# were called.
. tests/support/shell.sh
unset CC

bin=$tmp/bin
calls=$tmp/calls
stand_in() { printf '#!/bin/sh\n%s\n' "$2" >"$bin/$1" && chmod +x "$bin/$1"; }

# A machine: its user's id; what dpkg-query does not find; the tools it has besides.
machine()
{
    rm -rf "$bin" "$calls"
    mkdir "$bin"
    : >"$calls"
    for tool in sh env cat grep; do
        ln -s "$(command -v $tool)" "$bin/$tool"
    done
    stand_in id "echo $1"
    missing=$2
    shift 2
    for tool; do
        case $tool in
        dpkg-query) stand_in $tool "for last; do :; done
            case ' $missing ' in *\" \$last \"*) exit 1 ;; *) echo 'installed ' ;; esac" ;;
        sudo) stand_in sudo "echo sudo >>'$calls'; exec \"\$@\"" ;;
        apt-get) stand_in apt-get "echo \"apt-get \$*\" >>'$calls'" ;;
        no-lists) stand_in apt-get "echo \"apt-get \$*\" >>'$calls'
            [ \$1 = update ] || grep -q update '$calls'" ;;
        no-net) stand_in apt-get "echo \"apt-get \$*\" >>'$calls'; exit 1" ;;
        cc) stand_in cc "cat >/dev/null" ;;
        *) stand_in $tool : ;;
        esac
    done
}

# deps.sh there: the exit status, what is said (a pattern), what is called (a pattern).
gives()
{
    want=$1 said=$2 called=$3
    shift 3
    PATH=$bin "$bin/sh" scripts/deps.sh "$@" >"$tmp/said" 2>&1
    got=$?
    cat "$tmp/said" "$calls"
    [ $got = "$want" ] || { echo "status $got"; return 1; }
    case $(cat "$tmp/said") in $said) ;; *) return 1 ;; esac
    case $(tr '\n' ';' <"$calls") in $called) ;; *) return 1 ;; esac
}

machine 0 "" dpkg-query apt-get
check "all there: silent" gives 0 "" "" build test package demo arm port browser mpi ci
check "no such group" gives 2 "*no group nonsense*" "" nonsense
machine 0 "g++ zlib1g-dev" dpkg-query apt-get
check "root: installs what is missing" gives 0 "installing zlib1g-dev g++" \
    "apt-get install -y -qq --no-install-recommends zlib1g-dev g++;" build test
check "and only of the groups asked for" gives 0 "installing zlib1g-dev" "*zlib1g-dev;" build
machine 1000 "make" dpkg-query apt-get sudo
check "a user: through sudo" gives 0 "installing make" "sudo;apt-get install*make;" build
machine 1000 "make" dpkg-query apt-get
check "a user without sudo: says so, goes on" gives 0 "*needs*: make" "" build
machine 0 "make" dpkg-query no-lists
check "no package lists yet: fetches them" gives 0 "installing make" \
    "apt-get install*;apt-get update*;apt-get install*" build
machine 0 "make" dpkg-query no-net
check "no network: fails and says so" gives 1 "*could not install make" "*" build
machine 0 "dataset-fashion-mnist" dpkg-query no-net
check "a data set that cannot be had: says so" gives 1 "*could not install dataset-fashion-mnist" "*" \
    demo
machine 0 "" cc make g++ pkg-config
check "another system with all of it: silent" gives 0 "" "" build test
machine 0 "" cc mpicc mpirun
check "another system with an MPI: silent" gives 0 "" "" mpi
machine 0 "" cc
check "another system without one: says so, goes on" gives 0 "*needs*: *openmpi*" "" mpi
machine 0 "" cc g++
check "another system without make: says so, goes on" gives 0 "*needs*: make pkg-config" "" build test
finish
