#!/bin/sh
# Stops Kubeflow notebooks whose GPUs have not been used, by the annotation that Kubeflow's own culler sets. Kubeflow
# itself decides by the kernels' last activity; a notebook with a busy kernel and an idle GPU goes on for it.
#   notebook-culler.sh 4h --prometheus http://localhost:9090            # a dry run: prints what it would stop
#   notebook-culler.sh --stop 4h --prometheus http://localhost:9090
# A notebook labeled skuwise-keep=true is left alone. So is one that is busy or unknown, or whose pod has the name of
# another one in another namespace. The controller scales a stopped notebook to zero; its volume stays.
# Where SKUWISE_URL is set, it asks `skuwise serve` there (idle-over-http.sh) and needs no source.
# Exit status: 0; 1 where kubectl or a question failed; 2 wrong usage.
set -u

stop=
if [ "${1:-}" = --stop ]; then
    stop=yes
    shift
fi
case ${1:-} in
    '' | -*)
        echo "usage: notebook-culler.sh [--stop] LONGER_THAN [SOURCE OPTION ...]" >&2
        exit 2
        ;;
esac
longer_than=$1
shift
[ -z "${SKUWISE_URL:-}" ] || SKUWISE=$(dirname "$0")/idle-over-http.sh

rows='{range .items[*]}{.metadata.namespace}{" "}{.metadata.name}{"\n"}{end}'
kept='skuwise-keep!=true'
notebooks=$(kubectl get notebooks.kubeflow.org --all-namespaces --selector="$kept" --output="jsonpath=$rows") || {
    echo "notebook-culler.sh: kubectl failed" >&2
    exit 1
}
failed=0
while read -r namespace name; do
    case $namespace$name in '' | -* | *[!a-z0-9.-]*) continue ;; esac
    case $name in '' | -*) continue ;; esac
    # The pod of the notebook's StatefulSet.
    answer=$("${SKUWISE:-skuwise}" idle "$name-0" --longer-than "$longer_than" "$@" </dev/null)
    status=$?
    case $status:$answer in
        '0:idle: '*) ;;
        # Already stopped, or without GPUs: there is nothing of it.
        3:* | 4:* | 5:*) continue ;;
        *)
            echo "notebook-culler.sh: skuwise idle failed for $namespace/$name with status $status" >&2
            failed=$((failed + 1))
            continue
            ;;
    esac
    if [ -z "$stop" ]; then
        echo "would stop $namespace/$name: $answer"
    elif kubectl annotate notebooks.kubeflow.org "$name" --namespace="$namespace" \
        "kubeflow-resource-stopped=$(date -u +%Y-%m-%dT%H:%M:%SZ)" </dev/null >/dev/null; then
        echo "stopped $namespace/$name: $answer"
    else
        failed=$((failed + 1))
    fi
done <<END
$notebooks
END
[ "$failed" -eq 0 ] || exit 1
