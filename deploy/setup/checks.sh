# What a machine must have before an environment is made. Each failure is one sentence and its remedy on stderr.
# Read by environment.sh, which sets kind (run, dev or tool), goal, folder, given (VENV as asked for) and megabytes.

stop() {
    printf 'skuwise: %s\n' "$*" >&2
    exit 1
}

apt_line() {
    if [ "$(id -u)" -eq 0 ]; then printf 'apt-get install %s' "$*"; else printf 'sudo apt-get install %s' "$*"; fi
}

# Sets python to the first interpreter that will do, one that can make environments before one that cannot.
choose_python() {
    python='' old='' bare=''
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14}; do
        command -v "$candidate" >/dev/null 2>&1 || continue
        version=$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
        case $version in
        3.[0-9] | 3.10 | 2.*) old="${old:-$candidate is Python $version}" ;;
        *)
            if "$candidate" -c 'import venv, ensurepip' >/dev/null 2>&1; then
                python=$candidate
                return
            fi
            bare=${bare:-$candidate}
            ;;
        esac
    done
    python=$bare
    [ -z "$python" ] || return 0
    remedy="Set PYTHON=PROGRAM to another one, or install it: $(apt_line python3.11 python3.11-venv)"
    [ -z "$old" ] || stop "Python 3.11 or newer is required, but $old. $remedy"
    [ -z "${PYTHON:-}" ] || stop "PYTHON=$PYTHON is not a Python that runs. Name one of version 3.11 or newer."
    stop "Python is not installed. Install it: $(apt_line python3 python3-venv)"
}

# Names everything that is missing at once, with one line that installs it all.
check_programs() {
    missing='' packages=''
    if ! "$python" -c 'import venv, ensurepip' >/dev/null 2>&1; then
        case ${python##*/} in python3.*) packages=${python##*/}-venv ;; *) packages=python3-venv ;; esac
        missing="the venv module of $python"
    fi
    if [ "$kind" = dev ]; then
        command -v git >/dev/null 2>&1 || missing="${missing:+$missing, }git" packages="$packages git"
    fi
    # shellcheck disable=SC2086 # several packages are several words
    [ -z "$missing" ] || stop "Not installed: $missing. Install: $(apt_line ${packages})"
}

check_place() {
    if [ "$kind" = dev ] && [ ! -w . ]; then
        stop "The checkout $PWD is not writable, and tests write to it. Copy it: cp -r '$PWD' DIR"
    fi
    parent=$(dirname "$folder")
    mkdir -p "$parent" 2>/dev/null
    if [ ! -d "$parent" ] || [ ! -w "$parent" ]; then
        [ -n "$given" ] && stop "VENV=$given: the folder $parent is not writable. Name another one."
        stop "The checkout $PWD is not writable. Put the environment elsewhere: make $goal VENV=\$HOME/.cache/skuwise/$kind"
    fi
    [ "$(free_megabytes)" -ge "$megabytes" ] || full
}

free_megabytes() { df -Pk "$(dirname "$folder")" | awk 'NR == 2 { print int($4 / 1024); found = 1 } END { if (!found) print 999999 }'; }

full() {
    stop "The disk of $(dirname "$folder") is full: setting up needs $megabytes MB, $(free_megabytes) MB are free." \
        "Free space, or name a folder on another disk: make $goal VENV=DIR"
}
