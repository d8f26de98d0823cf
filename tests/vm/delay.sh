#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# delay: requests wait for a time drawn for each, by a clock that nobody sets, and the CPUs rest meanwhile.
. /tests/nrs.sh

# setup MIN MAX PERCENT [POLICY]
setup() {
	module
	slow_lower nb0 1000000
	client a /dev/nb0 svc
	client b /dev/nb0 svc
	set_to svc nrs_delay_min 0
	set_to svc nrs_delay_max "$2"
	set_to svc nrs_delay_min "$1"
	set_to svc nrs_delay_pct "$3"
	policy svc "${4:-delay}"
}

# now: milliseconds since the machine started.
now() {
	awk '{ printf "%d", $1 * 1000 }' /proc/uptime
}

# timed DEVICE [WORD...]: how long one read takes, ms, in $took.
timed() {
	local name=$1 start
	shift
	start=$(now)
	"$@" dd if="/dev/mapper/$name" of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null
	took=$(($(now) - start))
	say "a request of $name took $took ms"
}

# took FROM TO: whether $took lies there.
took() {
	[ "$took" -ge "$1" ] && [ "$took" -le "$2" ] || fail "$took ms, not $1 to $2"
}

# at_once COUNT: hands in so many requests together, in the background; each is taken back when it ends.
at_once() {
	load a --iodepth="$1" --iodepth_batch="$1" --number_ios="$1" >/tmp/at_once.txt &
	reader=$!
	wait_for 20 "[ \$((\$(counter a held) + \$(counter a ended))) = $1 ]" || fail "$(dm status a)"
}

# A request takes as long as it is told, several at a time too, one after the other as often.
exact() {
	setup 2 2 100
	timed a
	took 2000 2100
	timed a
	took 2000 2100
	set_to svc nrs_delay_max 4
	set_to svc nrs_delay_min 4
	timed b
	took 4000 4100
	set_to svc nrs_delay_min 0
	set_to svc nrs_delay_max 0
	timed a
	took 0 100
}

# Sixteen at a time need no longer than one. While they wait, nothing runs.
idle() {
	setup 5 5 100
	at_once 16
	gather 4 ended
	[ "${got[0]}" = 0 ] && [ "$(counter a held)" = 16 ] || fail "$(dm status a)"
	[ "$busy" -le 5 ] || fail "CPUs busy $busy % while all wait"
	wait "$reader"
	say "latency: $(terse /tmp/at_once.txt 14) to $(terse /tmp/at_once.txt 15) us"
	# fio begins to count when all have been handed in.
	[ "$(terse /tmp/at_once.txt 14)" -ge 4900000 ]
	[ "$(terse /tmp/at_once.txt 15)" -le 5200000 ]
}

# The time of day does not matter.
clock() {
	setup 4 4 100
	at_once 4
	local start today
	start=$(now)
	today=$(date +%s)
	date -s "@$((today + 86400))" >/dev/null
	sleep 1
	[ "$(counter a held)" = 4 ] || fail "let go by the clock: $(dm status a)"
	date -s "@$((today - 86400))" >/dev/null
	wait "$reader"
	took=$(($(now) - start))
	date -s "@$((today + 5))" >/dev/null
	took 3500 4700
}

# What waits is let go by whoever needs that; it counts as waiting, not as stalled.
let_go() {
	setup 60 60 100
	echo 400 >"$(at svc stall_ms)"
	at_once 8
	gather 2 ended
	[ "${got[0]}" = 0 ] && [ "$(counter a held)" = 8 ] || fail "$(dm status a)"
	grep -q 'stalls: 0' "$(at svc clients)" || fail "$(cat "$(at svc clients)")"
	awk '/name: delay/ { on = 1 } on && /queued:/ { exit !($2 == 8) }' "$(at svc nrs_policies)" || fail "$(cat "$(at svc nrs_policies)")"
	local start
	start=$(now)
	dm suspend a
	dm resume a
	wait "$reader"
	took=$(($(now) - start))
	took 0 1000
	[ "$(counter a held)" = 0 ]
}

try 30 "a request takes the time that was set" exact
long try 30 "many wait at a time, and the CPUs rest" idle
long try 30 "setting the clock changes nothing" clock
try 20 "what waits is let go by a suspend" let_go
remarks '^(a request|latency|ended)'
summary
