#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# High priority (ioprio class real-time): overtakes what waits, keeps a slot for itself, and does not starve the rest.
. /tests/nrs.sh

# setup POLICY SLOTS
setup() {
	module
	slow_lower nb0 4000000
	client a /dev/nb0 svc
	client b /dev/nb0 svc
	policy svc "$1"
	echo "$2" >"$(at svc slots)"
}

realtime() {
	load b --prioclass=1 --prio=0 --time_based "$@"
}

# Mean time of a request in the middle of a full queue, against that of those who wait in it.
overtakes() {
	setup "$1" 4
	load a --numjobs=2 --iodepth=32 --time_based --runtime=8 >/tmp/regular.txt &
	local regular=$!
	saturated a
	realtime --iodepth=1 --runtime=3 >/tmp/hp.txt
	wait "$regular"
	say "mean latency: high $(terse /tmp/hp.txt 16) us, regular $(terse /tmp/regular.txt 16) us"
	more 3 "$(terse /tmp/regular.txt 16)" "$(terse /tmp/hp.txt 16)"
}

# With two slots, regular requests have one; the other serves a lone high-priority request at once, as on an idle device.
kept_slot() {
	setup fifo 2
	realtime --iodepth=1 --runtime=2 >/tmp/idle.txt
	load a --numjobs=2 --iodepth=16 --time_based --runtime=60 >/dev/null 2>&1 &
	saturated a
	realtime --iodepth=1 --runtime=2 >/tmp/busy.txt
	say "mean latency: idle $(terse /tmp/idle.txt 16) us, busy $(terse /tmp/busy.txt 16) us"
	more 1 "$(awk -v t="$(terse /tmp/idle.txt 16)" 'BEGIN { print 1.5 * t }')" "$(terse /tmp/busy.txt 16)"
}

# A flood of high priority: of every eleven requests, regular ones get one (high_priority_ratio 10).
not_starved() {
	setup "$1" 4
	[ "$(cat "$(at svc high_priority_ratio)")" = 10 ]
	load a --numjobs=2 --time_based --runtime=60 >/dev/null 2>&1 &
	saturated a
	realtime --numjobs=2 --iodepth=32 --runtime=60 >/dev/null 2>&1 &
	saturated b
	window 1 ended a b >/dev/null
	local regular high got
	got=$(window 4 ended a b)
	read -r regular high <<<"$got"
	say "ended in 4 s: regular $regular, high $high"
	more 5 "$high" "$regular" && more 1 "$((regular * 15))" "$high" && [ "$regular" -gt 20 ]
}

for name in fifo fairshare; do
	try 40 "$name: high priority overtakes" overtakes "$name"
	try 40 "$name: regular requests are not starved" not_starved "$name"
done
try 40 "a slot is kept for high priority" kept_slot
grep -E '^(==|mean|ended)' /out/log | sed 's/^/# /'
summary
