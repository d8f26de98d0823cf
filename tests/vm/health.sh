#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# health: a slow device is not a dead one. Requests that a policy throttles do not affect the health
# of a service; a device that does not answer does.
. /tests/nrs.sh

# setup: Creates client a on a disk that can be suspended; unhealthy after 2 s, and no dispatch of
# stalled requests.
setup() {
	module
	hangs
	[ "$(health)" = healthy ] || fail "$(cat "$(at svc health)")"
}

health() {
	head -n 1 "$(at svc health)"
}

# stays SECONDS: Verifies that the service is healthy all the time.
stays() {
	local end=$((SECONDS + $1))
	while [ "$SECONDS" -lt "$end" ]; do
		[ "$(health)" = healthy ] || fail "$(cat "$(at svc health)")"
		sleep 0.2
	done
}

# Verifies health at one request of 4 KiB in a hundred seconds, in both heads.
limited() {
	setup
	policy svc 'tbf uid'
	set_to svc nrs_tbf_rule 'change default rate=41B/s'
	begin a
	begin a --prioclass=1 --prio=0
	saturated a
	stays 7
	[ "$(counter a held)" -ge 8 ] || fail "few requests are queued: $(dm status a)"
	grep -q 'stalls: 0' "$(at svc clients)" || fail "$(cat "$(at svc clients)")"
}

# Verifies health of requests that wait for an earlier request, while that request is throttled.
blocked() {
	setup
	echo overlap >"$(at svc nrs_pop)"
	policy svc 'tbf uid'
	set_to svc nrs_tbf_rule 'change default rate=1'
	nrs-test overlap probe /dev/mapper/a --depth 30 --chain 30 --size 64 >/tmp/probe.txt 2>&1 &
	saturated 20 a
	# One request per second is dispatched.
	stays 7
}

# Verifies that a device that hangs with queued requests is unhealthy until it answers again. A
# device without work is healthy.
hanging() {
	setup
	dm suspend --nolockfs lin
	stays 4
	begin a
	saturated a
	local start=${EPOCHREALTIME/./}
	[ "$(health)" = healthy ] || fail "at once: $(cat "$(at svc health)")"
	wait_for 20 '[ "$(health)" = "NOT HEALTHY" ]' || fail "$(cat "$(at svc health)")"
	start=$((${EPOCHREALTIME/./} - start))
	say "after $((start / 1000)) ms: $(tail -n 1 "$(at svc health)")"
	[ $start -ge 500000 ] || fail "too early"
	# Other services are not affected.
	lower nb1
	client b /dev/nb1 other
	[ "$(head -n 1 "$(at other health)")" = healthy ]
	# With factor 0 no service is unhealthy.
	echo 0 >"$(at svc at_unhealthy_factor)"
	[ "$(health)" = healthy ] || fail "$(cat "$(at svc health)")"
	echo 2 >"$(at svc at_unhealthy_factor)"
	[ "$(health)" = 'NOT HEALTHY' ] || fail "$(cat "$(at svc health)")"
	echo 600 >"$(at svc at_max)"
	[ "$(health)" = healthy ] || fail "$(cat "$(at svc health)")"
	echo 1 >"$(at svc at_max)"
	dm resume lin
	wait_for 10 '[ "$(health)" = healthy ]' || fail "$(cat "$(at svc health)")"
	stays 2
}

long try 40 "one request in a hundred seconds is healthy" limited
long try 40 "overlap: requests that wait for a throttled one are healthy" blocked
try 60 "a device that hangs is not healthy" hanging
remarks '^after'
summary
