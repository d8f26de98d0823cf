#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# usage: all.sh [--long] NAME...: runs the tests of those names one after the other in this machine and sums up their
# checks. With --long, tests that can take longer do (NRS_LONG).
. /tests/lib.sh
[ "${1:-}" != --long ] || { export NRS_LONG=1 && shift; }
# Seconds that one of them may take: many more than it does, as hosts differ; each check has its own limit.
limit=800
case $(uname -r) in *nrs-debug*) limit=1600 ;; esac
passed=0 failed=0
for name; do
	echo "== $name"
	started=$SECONDS
	: >"/tmp/all-$name.log"
	timeout -k 5 "$limit" bash "/tests/$name.sh" >"/tmp/all-$name.log" 2>&1 &
	pid=$!
	tail -f "/tmp/all-$name.log" 2>/dev/null &
	show=$!
	wait "$pid"
	status=$?
	# It looks once a second, and must not miss the last lines.
	sleep 1.2
	kill "$show" 2>/dev/null
	wait "$show" 2>/dev/null
	good=$(grep -c '^ok ' "/tmp/all-$name.log")
	bad=$(grep -c '^not ok ' "/tmp/all-$name.log")
	# A test that ends otherwise than by its summary has failed as a whole, and leaves things behind.
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
