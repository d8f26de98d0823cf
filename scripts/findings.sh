#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/findings.sh [NAME...]
#
# Runs the findings (findings/NAME.sh), or those named, one after another, and prints a table:
# whether what was found holds or has changed, versions and title. The output of each is in
# build/findings/NAME.log. Fails if any has changed.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
case ${1:-} in --help | -h) usage && exit ;; esac
cd "$NRS_TOP"
export NRS_CACHE
mkdir -p build/findings
[ $# -gt 0 ] || set -- $(grep -l '^# title:' findings/*.sh | xargs -n 1 basename -s .sh)
failed=0 table=''
for name; do
	log "findings: $name ..."
	verdict=holds
	"findings/$name.sh" >"build/findings/$name.log" 2>&1 || verdict=changed failed=1
	title=$(sed -n '/^# title:/,/^# guess:/{s/^# title: *//;s/^# *//;/^guess:/!p}' \
		"findings/$name.sh" | tr '\n' ' ')
	versions=$(sed -n 's/^version: //p' "build/findings/$name.log" | sort -u | paste -sd ,)
	table+="$verdict	${versions:-none}	${title%% }"$'\n'
done
printf '%s' "$table" | column -t -s $'\t'
exit $failed
