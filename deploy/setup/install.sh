# What pip does in a new environment, shown in few lines. Read by environment.sh, which sets kind, lock, folder and log.

# Every file is checked, and none is built: what builds a source archive would come without a hash.
PIP_INSTALL="-m pip --disable-pip-version-check install --no-compile"
HASHED="--require-hashes --only-binary=:all:"

# pip unpacks below the environment itself, so that one disk needs the space.
pip_install() { TMPDIR=$folder/tmp "$folder/bin/python" $PIP_INSTALL "$@"; }

install_lock() {
    total=$(grep -c '^[a-z0-9].*==' "$lock")
    { pip_install --progress-bar off $HASHED -r "$lock" 2>&1 || echo 'skuwise: pip failed'; } | tee "$log" | progress
    if tail -n 1 "$log" | grep -q '^skuwise: pip failed$'; then failed; fi
    [ "$kind" != run ] || slim
}

# Users run none of the packages' own tests (50 MB), and the setuptools that comes with Python 3.11 is too old for us.
slim() {
    "$folder/bin/python" -m pip --disable-pip-version-check uninstall --quiet --yes setuptools >"$log" 2>&1
    find "$folder/lib" -depth -type d -name tests -exec rm -rf {} +
}

# One line that is rewritten on a terminal; elsewhere a line for every tenth package.
progress() {
    count=0
    while IFS= read -r line; do
        case $line in
        Collecting\ *)
            count=$((count + 1))
            name=${line#Collecting } name=${name%% *}
            if [ -t 2 ]; then
                printf '\r\033[K  fetching %s of %s: %s' "$count" "$total" "$name" >&2
            elif [ $((count % 10)) -eq 0 ]; then
                printf '  fetched %s of %s packages\n' "$count" "$total" >&2
            fi
            ;;
        Installing\ collected*)
            [ ! -t 2 ] || printf '\r\033[K' >&2
            printf '  installing %s packages\n' "$count" >&2
            ;;
        esac
    done
    if [ -t 2 ]; then printf '\r\033[K' >&2; fi
}

# skuwise itself: for tests the checkout in place, to use it a wheel of its own. Neither fetches anything but, once, the
# locked build backend.
install_skuwise() {
    source=$(source_sum)
    if [ "$kind" = dev ]; then
        pip_install --quiet --no-index --no-deps --no-build-isolation -e . >"$log" 2>&1 || failed
    else
        printf '  building skuwise\n' >&2
        backend=$folder/share/skuwise-build
        if [ ! -d "$backend/setuptools" ]; then
            pip_install --quiet --target "$backend" $HASHED -r requirements/build.lock >"$log" 2>&1 || failed
        fi
        # From a copy: setuptools writes beside its source, and the checkout may be read-only.
        rm -rf "$folder/tmp/source" && mkdir "$folder/tmp/source" || full
        sources | tar -cf - -T - 2>"$log" | tar -xf - -C "$folder/tmp/source" 2>>"$log" || failed
        (cd "$folder/tmp/source" && PYTHONPATH=$backend TMPDIR=$folder/tmp "$folder/bin/python" -m pip \
            --disable-pip-version-check wheel --quiet --no-index --no-deps --no-build-isolation \
            --wheel-dir "$folder/tmp" .) >"$log" 2>&1 || failed
        pip_install --quiet --no-index --no-deps --force-reinstall "$folder"/tmp/skuwise-*.whl >"$log" 2>&1 || failed
    fi
    # Loads every module once: the environment is whole, and later starts find compiled code. A checkout that is being
    # worked on may hold a module that cannot be loaded; tests tell which.
    "$folder/bin/python" -P deploy/setup/load_modules.py >"$log" 2>&1 || [ "$kind" = dev ] || failed
    rm -rf "$folder/tmp"
    echo "$source" >"$folder/.source" || full
}

# What the wheel is made of.
sources() {
    printf '%s\n' pyproject.toml README.md LICENSE __init__.py __main__.py py.typed
    find agent advisor rules tui systemd -type f ! -name '*.pyc' | LC_ALL=C sort
}

# Tests run the checkout in place: only what the installation records of it counts.
source_sum() {
    if [ "$kind" = dev ]; then
        { pwd && cat pyproject.toml __init__.py; } | sha256sum | cut -d' ' -f1
    else
        sources | tr '\n' '\0' | xargs -0 sha256sum | sha256sum | cut -d' ' -f1
    fi
}

# Says in one sentence why pip or venv failed, from its own words in the log.
failed() {
    if grep -qiE 'No space left|Disk quota exceeded|Errno 28|Errno 122' "$log"; then full; fi
    if grep -qE 'NewConnectionError|Temporary failure in name|ConnectTimeout|ReadTimeout|ProxyError|Network is unreachable|Connection (refused|reset|timed out|broken)|ConnectionError' "$log"; then
        stop "pip cannot reach its package index. Check the network, or set PIP_INDEX_URL to a mirror; then run again: make $goal"
    fi
    if grep -qE 'SSLError|CERTIFICATE_VERIFY_FAILED' "$log"; then
        stop "pip does not trust the certificate of its package index. Set PIP_CERT to the file with your site's certificates."
    fi
    if grep -q 'DO NOT MATCH THE HASHES' "$log"; then
        stop "A downloaded package is not the locked one (its hash differs). Check the index or proxy that pip uses."
    fi
    if grep -q 'No matching distribution' "$log"; then
        name=$(sed -n 's/^ERROR: No matching distribution found for \([^ ]*\).*/\1/p' "$log" | head -n 1)
        stop "No locked wheel of $name fits $("$folder/bin/python" --version 2>&1) on $(uname -m). Set PYTHON to another" \
            "version (3.11 to 3.14)."
    fi
    stop "The environment $folder cannot be made: $(grep -v '^skuwise: pip failed$' "$log" | grep . | tail -n 1 | cut -c 1-300). Run again: make $goal"
}
