#!/bin/sh
# Looks for Python (and Java, for a target that runs Spark), makes .venv and installs what the project needs into it.
#
#   tools/prepare.sh [--java]
#
# It is plain sh because Python may be what is missing. Everything that can be wrong with the machine is said in one line,
# with what to install, before anything is made or downloaded. Where packages come from is pip's own setting; this script
# adds none. A second run does nothing unless a file of $described changed: the stamp holds their checksum. Loops
# are compiled on the way where there is a C compiler, and left out where there is none (setup.py).
set -eu
cd "$(dirname "$0")/.."

fail() {
    echo "halfmoon: $*" >&2
    exit 1
}

# The version test is Python's own: it prints nothing and says by its exit code what is wrong.
probe='import sys
if sys.version_info < (3, 11): sys.exit(2)
try: import ensurepip, venv
except ImportError: sys.exit(3)'

found=""
old=""
bare=""
for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3 python}; do
    command -v "$candidate" >/dev/null 2>&1 || continue
    code=0
    "$candidate" -c "$probe" >/dev/null 2>&1 || code=$?
    case $code in
        0) found=$candidate; break ;;
        2) old="$candidate is $("$candidate" -c 'import platform; print(platform.python_version())' 2>/dev/null)" ;;
        3) bare=$candidate ;;
    esac
done
if [ -z "$found" ]; then
    [ -z "$bare" ] || fail "$bare cannot make virtual environments: install its venv module (Debian, Ubuntu: apt install python3-venv)"
    [ -z "$old" ] || fail "Python 3.11 or newer is needed, $old: install python3.11, or name one with make PYTHON=/path/to/python3.11"
    fail "Python 3.11 or newer is needed and none was found: install python3.11, or name one with make PYTHON=/path/to/python3.11"
fi

if [ "${1:-}" = "--java" ]; then
    # Spark itself looks at JAVA_HOME first, then at the path.
    java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    hint="install a Java 17 runtime (Debian, Ubuntu: apt install openjdk-17-jre-headless), or set JAVA_HOME to one"
    command -v "$java" >/dev/null 2>&1 || fail "Java 17 is needed for Spark and $java was not found: $hint"
    # "17.0.15", "21", and "1.8.0_402" for 8.
    version=$("$java" -version 2>&1 | sed -n 's/.*version "\([^"]*\)".*/\1/p' | head -n 1)
    major=${version%%[!0-9]*}
    case $version in 1.*) major=${version#1.}; major=${major%%[!0-9]*} ;; esac
    case $major in
        '') fail "Java 17 is needed for Spark and $java does not tell its version: $hint" ;;
        [0-9] | 1[0-6]) fail "Java 17 is needed for Spark and $java is $version, which is too old: $hint" ;;
        17 | 18 | 19 | 20 | 21 | 22 | 23) ;;
        # Java 24 took the security manager away, which Spark 4.0's Hadoop libraries call.
        *) fail "Java 17 is needed for Spark and $java is $version, which Spark 4.0 does not run on: $hint" ;;
    esac
fi

python=.venv/bin/python
stamp=.venv/installed
described="pyproject.toml constraints.txt setup.py halfmoon/core/records/_walk.pyx halfmoon/adapters/rocketmq/_draw.pyx"
wanted=$(cat $described | cksum)
if [ -x $python ] && $python -c "$probe" >/dev/null 2>&1 && [ "$(cat $stamp 2>/dev/null)" = "$wanted" ]; then
    exit 0
fi
echo "halfmoon: installing into .venv with $("$found" --version)"
rm -f $stamp
"$found" -m venv --clear .venv || fail "$found could not make .venv"
$python -m pip install --quiet --constraint constraints.txt --editable '.[spark,dev]' ||
    fail "pip could not install the dependencies: its message stands above; behind a proxy or a mirror set PIP_INDEX_URL or pip.conf"
echo "$wanted" >$stamp
