#!/bin/sh
# Before a first installation, of the .deb and the .rpm. A unit in /etc hides the package's (systemd.unit(5)): the service
# would continue to run what `skuwise agent install` named in it.
unit=/etc/systemd/system/skuwise-agent.service
case "$1" in install | 1)
    if grep -qs '^# Written by skuwise agent install' "$unit"; then
        echo "skuwise: $unit belongs to another installation and would hide the package's. Run that one's" \
            "'skuwise agent uninstall' first; the database and the settings stay." >&2
        exit 1
    fi
    ;;
esac
exit 0
