#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# usage: all.sh [--long] NAME...
#
# Runs the named tests one after the other in this machine and sums up their checks. --long also
# runs the checks of `make test-long` (NRS_LONG). NAME+idle, NAME+metadata: the checks of `make
# test` with another device in the service, which is idle or whose directories are read all the time
# (NRS_BESIDE). NAME+elevator: the checks with disks whose I/O scheduler is nrs instead of dm
# devices (NRS_FRONT).
. /tests/lib.sh
[ "${1:-}" != --long ] || { export NRS_LONG=1 && shift; }
# Time limit of a test, s: much more than a test takes, because hosts differ; each check has its own
# limit.
limit=800
case $(uname -r) in *nrs-debug*) limit=1600 ;; esac
export NRS_TALLY=/tmp/tally
passed=0 failed=0
for name; do
	echo "== $name"
	started=$SECONDS good=0 bad=0
	: >"$NRS_TALLY"
	case $name in
	*+elevator) run=(env NRS_FRONT=elevator) ;;
	*+*) run=(env NRS_LONG= NRS_BESIDE="${name#*+}") ;;
	*) run=(env) ;;
	esac
	timeout -k 5 "$limit" "${run[@]}" bash "/tests/${name%+*}.sh" 2>&1
	status=$?
	while read -r verdict; do
		case $verdict in ok) good=$((good + 1)) ;; *) bad=$((bad + 1)) ;; esac
	done <"$NRS_TALLY"
	# A test that exits without its summary has failed as a whole, and leaves devices and services
	# behind.
	if [ "$status" != 0 ] && [ "$bad" = 0 ]; then
		echo "not ok - $name # status $status"
		bad=1
		bash -c '. /tests/nrs.sh && clean_up' 2>&1 | sed 's/^/# /'
	fi
	echo "== $name: $good passed, $bad failed, $((SECONDS - started)) s"
	passed=$((passed + good)) failed=$((failed + bad))
done
echo "== all: $passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
