#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# delay: each request waits for a random time, by a clock that cannot be set, while the CPUs are
# idle.
. /tests/nrs.sh

# setup MIN MAX PERCENT [POLICY]: Creates two clients of a service under the policy (default delay).
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

# now: Prints the milliseconds since the start of the machine.
now() {
	awk '{ printf "%d", $1 * 1000 }' /proc/uptime
}

# timed DEVICE [WORD...]: Sets $took to the time of one read, ms.
timed() {
	local name=$1 start
	shift
	start=$(now)
	"$@" dd if="/dev/mapper/$name" of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null
	took=$(($(now) - start))
	say "a request of $name took $took ms"
}

# took FROM TO: Verifies that $took is in this range.
took() {
	[ "$took" -ge "$1" ] && [ "$took" -le "$2" ] || fail "$took ms, not $1 to $2"
}

# at_once COUNT: Submits COUNT requests together, in the background; each is reaped when it
# completes.
at_once() {
	load a --iodepth="$1" --iodepth_batch="$1" --number_ios="$1" >/tmp/at_once.txt &
	reader=$!
	wait_for 20 "[ \$((\$(counter a held) + \$(counter a ended))) = $1 ]" || fail "$(dm status a)"
}

# Verifies the configured delay of single requests on both clients.
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

# Verifies that sixteen requests together take no longer than one, and that the CPUs are idle
# meanwhile.
idle() {
	setup 5 5 100
	at_once 16
	gather 4 ended
	[ "${got[0]}" = 0 ] && [ "$(counter a held)" = 16 ] || fail "$(dm status a)"
	[ "$busy" -le 5 ] || fail "CPUs busy $busy % while all wait"
	wait "$reader"
	say "latency: $(terse /tmp/at_once.txt 14) to $(terse /tmp/at_once.txt 15) us"
	# fio starts its latency clock after all requests are submitted.
	[ "$(terse /tmp/at_once.txt 14)" -ge 4900000 ]
	[ "$(terse /tmp/at_once.txt 15)" -le 5200000 ]
}

# Verifies that setting the time of day has no effect.
clock() {
	setup 4 4 100
	at_once 4
	local start today
	start=$(now)
	today=$(date +%s)
	date -s "@$((today + 86400))" >/dev/null
	sleep 1
	[ "$(counter a held)" = 4 ] || fail "dispatched by a change of the clock: $(dm status a)"
	date -s "@$((today - 86400))" >/dev/null
	wait "$reader"
	took=$(($(now) - start))
	date -s "@$((today + 5))" >/dev/null
	took 3500 4700
}

# Verifies that a suspend dispatches delayed requests, and that these count as queued, not as
# stalled.
suspend_dispatches() {
	setup 60 60 100
	echo 400 >"$(at svc stall_ms)"
	at_once 8
	gather 2 ended
	[ "${got[0]}" = 0 ] && [ "$(counter a held)" = 8 ] || fail "$(dm status a)"
	grep -q 'stalls: 0' "$(at svc clients)" || fail "$(cat "$(at svc clients)")"
	awk '/name: delay/ { on = 1 } on && /queued:/ { exit !($2 == 8) }' "$(at svc nrs_policies)" ||
		fail "$(cat "$(at svc nrs_policies)")"
	local start
	start=$(now)
	dm suspend a
	dm resume a
	wait "$reader"
	took=$(($(now) - start))
	took 0 1000
	[ "$(counter a held)" = 0 ]
}

try 30 "a request has the configured delay" exact
long try 30 "the CPUs are idle while many requests are delayed" idle
long try 30 "setting the clock has no effect" clock
try 20 "a suspend dispatches delayed requests" suspend_dispatches
remarks '^(a request|latency|ended)'
summary
