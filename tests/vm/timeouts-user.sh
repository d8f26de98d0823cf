#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# /dev/nrs: deadlines, early replies and recovery. Needs nrs-test and the example timeouts
# (scripts/build-tools.sh).
. /tests/nrs.sh

# gone: Waits until all services are removed.
gone() {
	wait_for 20 '[ -z "$(ls -d /sys/kernel/debug/nrs/*/ 2>/dev/null)" ]' ||
		fail "$1: left $(ls /sys/kernel/debug/nrs)"
}

# part NAME: Runs one check of nrs-test.
part() {
	module
	nrs-test check "$1" || fail "nrs-test check $1"
	gone "$1"
}

# Verifies early replies while the throttling policy and all settings change.
storm() {
	module
	local end=$((SECONDS + $(slow 8 16))) pid n file value
	nrs-test check hostile >/tmp/hostile &
	pid=$!
	while [ $SECONDS -lt $end ]; do
		for n in fifo fairshare tbf; do
			{ echo "$n" >"$(at hostile nrs_policies)"; } 2>/dev/null || true
			for file in at_max=0 obd_timeout=0 at_max=600 at_extra=1 at_min=2 at_estimator=average \
				at_extra=30 at_min=1 at_estimator=worst obd_timeout=100; do
				value=${file#*=}
				{
					echo "$value" >"$(at hostile "${file%=*}")" &&
						cat "$(at hostile timeouts)" "$(at hostile at_stats)"
				} >/dev/null 2>&1 || true
			done
		done
		sleep 0.02
	done
	# With other settings the check may fail; it must end, and leave nothing behind.
	wait $pid || true
	gone hostile
	rmmod nrs
}

# Verifies that the files of the service count its early replies correctly.
counters() {
	module
	nrs-test check early >/tmp/early &
	local pid=$! stats='' now
	while kill -0 $pid 2>/dev/null; do
		now=$(cat "$(at early at_stats)" 2>/dev/null) || true
		stats=${now:-$stats}
		sleep 0.1
	done
	wait $pid || fail "$(cat /tmp/early)"
	[[ $stats == *'early_sent: 5'* && $stats == *'early_refused: 1'* &&
		$stats == *'early_late: 0'* ]] || fail "$stats"
	gone early
}

# clients COUNT SECONDS: Runs clients, and sets $said to their result.
clients() {
	said=$(example-timeouts clients "$1" "$2")
	say "$1 clients: $said"
}

# number NAME: Prints a number of the result.
number() {
	tr , '\n' <<<"$said" | sed -nE "s/^ ?(lost: )?$1:? ([0-9]+).*/\2/p"
}

# Verifies that clients in another program than their server wait long enough while the server is
# slow, and notice within their timeout that the server was killed.
two_programs() {
	module
	ip link set lo up
	example-timeouts server 100 &
	local server=$! word said
	wait_for 10 '[ -e "$(at timeouts at_min)" ] && grep -q ":1E62 " /proc/net/udp' ||
		fail "no server"
	for word in at_early_margin=1 at_min=1 at_increment=1 at_history=8 at_initial=1; do
		set_to timeouts "${word%=*}" "${word#*=}"
	done
	clients 1 3
	[ "$(number replies)" -ge 10 ]
	[ "$(number 'early replies')" = 0 ]
	[ "$(number 'false timeouts')" = 0 ]
	[ "$(number timeout)" -lt 2500 ]
	# The queue is longer than the timeout that clients state at first.
	clients 24 10
	[ "$(number longest)" -ge 2250 ]
	[ "$(number 'early replies')" -ge 1 ]
	[ "$(number 'false timeouts')" = 0 ]
	[ "$(number timeout)" -ge 3500 ]
	example-timeouts clients 2 60 >/tmp/clients &
	local asking=$!
	sleep 2
	kill -KILL $server
	wait $server || true
	wait $asking
	said=$(</tmp/clients)
	say "$said"
	[ "$(number 'noticed after')" -le $(($(number timeout) + 500)) ]
	[ "$(number timeout)" -le 5000 ]
	gone timeouts
}

# simulate SERVICE SETTINGS ARG...: Runs nrs-test load with adaptive timeouts on a new service.
simulate() {
	local word
	mkdir "/sys/kernel/config/nrs/$1"
	for word in at_early_margin=1 at_min=1 at_increment=1 at_initial=1 $2; do
		set_to "$1" "${word%=*}" "${word#*=}"
	done
	nrs-test load --service "$1" --timeouts=1 "${@:3}" >/tmp/load.json
	say "$1: $(grep -A 7 '"timeouts"' /tmp/load.json | tr -d ' \n')"
}

# Verifies that simulated clients wait long enough while the only server is always busy, and notice
# lost requests within their timeout.
simulated() {
	module
	local name timeout noticed
	# The service of each request is longer than the first timeout of a client, 2250 ms.
	simulate slow slots=1 --seconds 2 --drain --busy 2500000 --servers 1 \
		--client name=first --client name=next,start=0.5,depth=2
	for name in first next; do
		[ "$(of_load /tmp/load.json $name early_replies)" -ge 1 ]
		[ "$(of_load /tmp/load.json $name false)" = 0 ]
		[ "$(of_load /tmp/load.json $name lost)" = 0 ]
	done
	more 1 "$(of_load /tmp/load.json next max)" 4000000
	[ "$(of_load /tmp/load.json next timeout_ms)" -ge 6000 ]
	# A server that works sends early replies for lost requests, too, until at_max.
	simulate lossy 'at_extra=2 at_max=4' --seconds 60 --lose 5 --client name=a,depth=2,requests=10
	[ "$(of_load /tmp/load.json a lost)" = 2 ]
	[ "$(of_load /tmp/load.json a false)" = 0 ]
	[ "$(of_load /tmp/load.json a early_replies)" -ge 2 ]
	timeout=$(of_load /tmp/load.json a lost_timeout_ms)
	noticed=$(of_load /tmp/load.json a noticed_ms)
	[ "$timeout" -le 4500 ]
	[ "$noticed" -ge "$timeout" ]
	[ "$noticed" -le $((timeout + 500)) ]
}

try 30 "early replies are in time, and end with the limit" part early
try 30 "a server reports that it is busy" part busy
if [ -z "$debug" ]; then
	# The debug kernel has no network.
	try 60 "two programs: no false timeout of a slow server, and a killed one is noticed" \
		two_programs
	try 40 "simulated clients: no false timeout of a busy server, lost requests are noticed" \
		simulated
	long try 90 "65,536 requests are queued while all slots are busy" part crowd
	long try 120 "throttled requests do not expire" part rate
fi
try 30 "clients recover" part recovery
try 60 "hostile records" part hostile
long try 60 "a server that never reads" part silent
long try 30 "counters of the service" counters
long try 60 "settings change under load" storm
summary
