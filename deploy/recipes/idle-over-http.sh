#!/bin/sh
# Answers as `skuwise idle` does, by asking `skuwise serve --listen`, where skuwise itself is not installed. The other
# recipes call it where SKUWISE_URL is set:
#   SKUWISE_URL=http://127.0.0.1:9478 idle-over-http.sh idle 4711 --longer-than 2h
# SKUWISE_TOKEN_FILE: the file with the token of the API, where it has one. Options of a source are ignored: the server
# has its own. While the server still computes the answer, it is asked again for up to 5 minutes.
# Exit status: 0 idle, 4 busy, 5 not known, 3 no such target, 1 anything else, 2 wrong usage.
set -u

if [ $# -lt 4 ] || [ "$1" != idle ] || [ "$3" != --longer-than ] || [ -z "$2" ] || [ -z "${SKUWISE_URL:-}" ]; then
    echo "usage: SKUWISE_URL=URL idle-over-http.sh idle TARGET --longer-than LONGER_THAN" >&2
    exit 2
fi
case $4 in '' | *[!0-9a-z]*) echo "idle-over-http.sh: no duration: $4" >&2 && exit 2 ;; esac
# Every byte of the target as %NN.
target=$(printf %s "$2" | od -An -v -tx1 | tr -d ' \n' | sed 's/../%&/g')
header=X-Client:skuwise-recipe
[ -z "${SKUWISE_TOKEN_FILE:-}" ] || header="Authorization: Bearer $(cat "$SKUWISE_TOKEN_FILE")" || exit 1
# The token goes by a pipe: other users can see arguments.
answer=$(printf '%s\n' "$header" | curl --silent --show-error --globoff --max-time 60 --retry 10 --retry-max-time 300 \
    --header @- --write-out '\n%{http_code}' "${SKUWISE_URL%/}/v1/idle/$target?longer_than=$4") || exit 1
body=$(printf '%s\n' "$answer" | sed '$d')
case ${answer##*
} in
    200) ;;
    404) exit 3 ;;
    *)
        printf 'idle-over-http.sh: %s\n' "$body" >&2
        exit 1
        ;;
esac
# In text of a workload every quotation mark has a backslash before it, so no name can look like a key.
value() {
    printf '%s\n' "$body" | sed -n "s/.*[,{]\"$1\":\"\([A-Za-z0-9:-]*\)\".*/\1/p"
}
state=$(value state)
about="$(value code), last activity $(value last_work), data until $(value data_end)"
case $state in
    idle) echo "idle: since $(value idle_since) ($about)" ;;
    busy) echo "busy: $about" && exit 4 ;;
    unknown) echo "not known: $about" && exit 5 ;;
    *) exit 1 ;;
esac
