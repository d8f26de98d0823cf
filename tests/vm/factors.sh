#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Accounts and factors of an agent (/dev/nrs-control, nrs-test factors): reported accounts, factors
# and their lease, refusals.
. /tests/nrs.sh

slots=8
tracing=/sys/kernel/tracing
grep -q " $tracing " /proc/mounts || mount -t tracefs tracefs $tracing

# setup: Creates two devices on one disk that completes each request after 8 ms, one service, and a
# user with a backlog on each.
setup() {
	[ -x /bin/nrs-test ] || fail "no nrs-test: build-tools.sh"
	module
	slow_lower nb0 8000000 size=1024
	sharer a /dev/nb0 svc
	sharer b /dev/nb0 svc
	echo $slots >"$(at svc slots)"
	policy svc 'fairshare uid_fair'
	begin a as=1001
	begin b as=1002
	saturated a b
}

# shares FACTOR: Verifies that b gets FACTOR times as much as a, within 5 %.
shares() {
	window 1 ended a b >/dev/null
	local got a b
	got=$(window "$(brief 2 8)" ended a b)
	read -r a b <<<"$got"
	say "requests: a $a, b $b, wanted 1:$1"
	within 5 $((a * $1)) "$b" || fail "1:$1: $a and $b: $(cat "$(at svc nrs_fairshare_stats)")"
}

# factor UID: Prints the user's current factor.
factor() {
	awk -v entity="\"uid:$1\"" \
		'$2 == "entity:" { hit = $3 == entity } hit && $1 == "factor:" { print $2 }' \
		"$(at svc nrs_fairshare_stats)"
}

# of_service NAME: Prints a number of the service.
of_service() {
	sed -n "1s/.* $1: \([0-9]*\).*/\1/p" "$(at svc clients)"
}

# hold [OPTION...] KEY=FACTOR...: Starts an agent, $agent, that sets these factors and confirms this
# in /tmp/held.
hold() {
	nrs-test factors hold svc "$@" >/tmp/held 2>&1 &
	agent=$!
	wait_for 20 'grep -q held /tmp/held' || fail "$(cat /tmp/held)"
}

agree() {
	setup
	nrs-test factors agree svc
	hold uid:1001=0.25
	[ "$(factor 1001)" = 0.250 ] || fail "$(cat "$(at svc nrs_fairshare_stats)")"
	[ "$(factor 1002)" = 1.000 ]
	# Only one agent at a time.
	refused EBUSY nrs-test factors agree svc
	kill -KILL $agent
	wait $agent || true
	echo uid:1002:3 >"$(at svc nrs_fairshare_weights)"
	nrs-test factors agree svc
	policy svc 'fairshare gid_then_uid_fair'
	wait_for 10 'grep -q uid:1001 "$(at svc nrs_fairshare_stats)" &&
		grep -q uid:1002 "$(at svc nrs_fairshare_stats)"'
	nrs-test factors agree svc
	# Without the policy there are no accounts.
	policy svc fifo
	exec 3<>/dev/nrs-control
	echo 'bind svc' >&3
	echo 'accounts' >&3
	[ "$(cat <&3 | wc -c)" = 32 ] || fail "more than a head"
	exec 3>&-
}

refusals() {
	setup
	local written stale
	nrs-test factors refuse svc
	written=$(of_service factors_written) stale=$(of_service factors_stale)
	[ "$written $stale" = '2 2' ] || fail "written $written, stale $stale"
	# The service is removed and created again: the file is bound to the removed service.
	exec 3<>/dev/nrs-control
	echo 'bind svc' >&3
	# shellcheck disable=SC2046
	kill -KILL $(pidof fio)
	wait_for 10 '! pidof fio >/dev/null'
	remove_client a
	remove_client b
	if echo accounts >&3; then fail "accepted without a service"; fi 2>/dev/null
	[[ $(cat <&3) == 'service was removed' ]] || fail "$(cat <&3)"
	if echo accounts >&3; then fail "the file is bound"; fi 2>/dev/null
	[[ $(cat <&3) == *'not bound'* ]] || fail "$(cat <&3)"
	exec 3>&-
}

# Verifies that factor 1/4 is a quarter of the share, despite other changes, until the instance is
# replaced.
quarter() {
	setup
	long shares 1
	hold uid:1001=0.25
	shares 4
	echo uid:1003:2 >"$(at svc nrs_fairshare_weights)"
	set_to svc nrs_fairshare_delta_ms 50
	set_to svc slots 6
	shares 4
	[ "$(factor 1001)" = 0.250 ]
	set_to svc nrs_fairshare_cost_model rpcs
	wait_for 10 'grep -q stale /tmp/held' || fail "$(cat /tmp/held)"
	wait $agent || fail "$(cat /tmp/held)"
	[ "$(factor 1001)" = 1.000 ] || fail "$(cat "$(at svc nrs_fairshare_stats)")"
	[ "$(of_service factors_stale)" = 1 ] || fail "$(head -n 1 "$(at svc clients)")"
}

# Verifies that factors return to one in ten steps without an agent.
lapse() {
	setup
	local last=0 signal now
	echo >$tracing/trace
	echo 1 >$tracing/events/nrs/nrs_factors/enable
	hold --once --lease 1000 uid:1001=0.01
	[ "$(factor 1001)" = 0.010 ] || fail "$(factor 1001)"
	wait_for 10 '[ "$(factor 1001)" = 1.000 ]' || fail "$(factor 1001)"
	# The event is recorded with the next delta.
	wait_for 10 'grep -q "step=10" $tracing/trace' || fail "$(cat $tracing/trace)"
	echo 0 >$tracing/events/nrs/nrs_factors/enable
	grep -o 'service=svc .*' $tracing/trace |
		sed 's/instance=[0-9a-f]* //; s/.*factors=1 lease_ms=1000 step=//' >/tmp/steps
	[ "$(head -n 1 /tmp/steps)" = 0 ] && [ "$(tail -n 1 /tmp/steps)" = 10 ] ||
		fail "$(cat /tmp/steps)"
	while read -r now; do
		[ "$now" = 0 ] || [ "$now" -gt "$last" ] || fail "$(cat /tmp/steps)"
		last=$now
	done </tmp/steps
	[ "$(wc -l </tmp/steps)" -ge 6 ] || fail "not step by step: $(cat /tmp/steps)"
	shares 1
	[ "$(of_service factors_lapsed)" = 1 ]
	kill -TERM $agent
	wait $agent || true
	for signal in TERM KILL; do
		hold --lease 3000 uid:1001=0.01
		[ "$(factor 1001)" = 0.010 ]
		kill -$signal $agent
		wait $agent || true
		# Not at once, but without waiting for the lease.
		wait_for 2 '[ "$(factor 1001)" != 0.010 ]' || fail "$signal: $(factor 1001)"
		wait_for 10 '[ "$(factor 1001)" = 1.000 ]' || fail "$signal: $(factor 1001)"
	done
	[ "$(of_service factors_lapsed)" = 3 ] || fail "$(head -n 1 "$(at svc clients)")"
}

# Verifies that factors also return to one on a target without devices.
unused() {
	module
	slow_lower nb0 8000000 size=1024
	slow_lower nb1 8000000 size=1024
	sharer a /dev/nb0 svc
	sharer b /dev/nb1 svc
	policy svc 'fairshare uid_fair'
	begin a as=1001
	begin b as=1002
	wait_for 20 '[ -n "$(factor 1001)" ] && [ -n "$(factor 1002)" ]' ||
		fail "$(cat "$(at svc nrs_fairshare_stats)")"
	hold --once --lease 1000 uid:1001=0.01
	# shellcheck disable=SC2046
	kill -KILL $(pidof fio)
	wait_for 10 '! pidof fio >/dev/null' || fail "$(pidof fio)"
	remove_client a
	# The entity is evicted later, after ten seconds.
	wait_for 8 '[ "$(factor 1001)" = 1.000 ]' || fail "$(factor 1001)"
}

# Verifies that an entity idle for ten seconds is reported for a last time.
last_report() {
	setup
	# shellcheck disable=SC2046
	kill -KILL $(pidof fio)
	wait_for 10 \
		'! pidof fio >/dev/null && [ "$(counter a held)" = 0 ] && [ "$(counter b held)" = 0 ]'
	sleep 1
	nrs-test factors changes svc
}

try 30 "accounts and names agree with statistics; one agent" agree
try 30 "refusals change nothing" refusals
try 60 "a factor of 1/4 gives shares of 1:4 within 5 %, and persists" quarter
long try 60 "factors return to one without an agent" lapse
try 30 "factors return to one on a target without devices" unused
long try 60 "changed accounts, and the last report of an entity" last_report
remarks '^requests:'
summary
