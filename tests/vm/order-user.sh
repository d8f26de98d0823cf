#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# /dev/nrs: order, promotions and credits, under each policy. Needs nrs-test
# (scripts/build-tools.sh).
. /tests/nrs.sh

# gone: Waits until all services are removed.
gone() {
	wait_for 20 '[ -z "$(ls -d /sys/kernel/debug/nrs/*/ 2>/dev/null)" ]' ||
		fail "$1: left $(ls /sys/kernel/debug/nrs)"
}

# under SETTING...: Runs all checks with these settings; neither order nor credits depend on the
# policy.
under() {
	module
	local name
	for name in $(nrs-test check --list order); do
		nrs-test check "$name" "$@" || fail "nrs-test check $name $*"
		gone "$name"
	done
}

# Verifies that delayed requests also keep their order; their delay is random.
delayed() {
	module
	local name
	for name in graph stream writers close_blocked; do
		nrs-test check "$name" nrs_policies=delay "nrs_delay_min=reg_delay_min:0 hp_delay_min:0" \
			"nrs_delay_max=reg_delay_max:1 hp_delay_max:1" \
			"nrs_delay_pct=reg_delay_pct:20 hp_delay_pct:20" "$1" || fail "nrs-test check $name"
		gone "$name"
	done
}

# tail_of FILE CLIENT: Prints the 95th percentile of the client's queueing time, us; there are too
# few requests for the 99th.
tail_of() {
	awk -v c="\"$2\"," \
		'$1 == "\"name\":" { hit = $2 == c } hit && $1 == "\"withheld_us\":" { in_it = 1 }
			in_it && $1 == "\"p95\":" { sub(",", "", $2); print int($2); exit }' "$1"
}

# number NAME: Sets $number to a number in the text $told.
number() {
	[[ $told =~ (^|$'\n')$1:\ ([0-9]+) ]] || fail "no $1 in $told"
	number=${BASH_REMATCH[2]}
}

# run_clients [OPTION...]: Runs 64 clients with depth 32, and a newcomer with depth 1.
run_clients() {
	nrs-test load --service svc --seconds 8 --busy 4000 \
		--client 'name=old%,nid=10.0.0.1@tcp,count=64,depth=32' \
		--client 'name=new,nid=10.0.1.1@tcp,depth=1,start=1' "$@" >/tmp/load.json &
	local pid=$! told number
	wait_for 10 '[ -e /sys/kernel/debug/nrs/svc/slots ]'
	echo 8 >/sys/kernel/debug/nrs/svc/slots
	sleep 2
	told=$(</sys/kernel/debug/nrs/svc/nrs_concurrency)
	number fan_out && fan_out=$number
	number credits && credits=$number
	number over && over=$number
	wait $pid || fail "$(tail -n 5 /tmp/load.json)"
	gone svc
}

# Verifies that credits limit the requests of other clients that a newcomer waits for.
newcomer() {
	module
	local fan_out credits over without with
	run_clients
	without=$(tail_of /tmp/load.json new)
	say "without credits: fan-out $fan_out, credits $credits, over $over, newcomer p95 $without us"
	[ "$fan_out" -ge 60 ] && [ "$credits" -ge 1 ] && [ "$over" -gt 0 ] ||
		fail "fan-out $fan_out, credits $credits, over $over"
	run_clients --credits
	with=$(tail_of /tmp/load.json new)
	say "with credits: fan-out $fan_out, credits $credits, over $over, newcomer p95 $with us"
	[ "$with" -lt "$((without / 3))" ] || fail "with credits $with us, without $without us"
}

# Runs promotions, streams and changes of the policy and the level concurrently.
storm() {
	module
	nrs-test load --service svc --seconds "$(slow 8 16)" --busy 500 --promote 20 --drain \
		--client 'name=s%,nid=10.0.0.1@tcp,stream=1%,object=1%,offset=seq,count=8,depth=40' \
		--client 'name=r,nid=10.0.1.1@tcp,offset=random,depth=60,priority=high' \
		--order-log /tmp/order >/tmp/load.json &
	local pid=$! text
	wait_for 10 '[ -e /sys/kernel/debug/nrs/svc/slots ]'
	while kill -0 $pid 2>/dev/null; do
		for text in crrn fairshare orr qbm fifo trr tbf; do
			{ echo "$text" >"$(at svc nrs_policies)"; } 2>/dev/null || true
			for level in none stream graph; do
				{
					echo $level >"$(at svc nrs_pop)" && cat "$(at svc nrs_concurrency)"
				} >/dev/null 2>&1 || true
			done
			sleep 0.02
		done
	done
	wait $pid || fail "$(tail -n 5 /tmp/load.json)"
	say "$(grep -E '"(served|promoted|blocked|forced)"' /tmp/load.json | tail -n 3 | tr -d '\n')"
	[ "$(awk 'END { print NF }' /tmp/order)" = 4 ]
}

# Verifies that streams stay in order at a fast server, despite promotions.
streams() {
	module
	nrs-test load --service svc --seconds 3 --busy 1000 --promote 10 --drain \
		--client 'name=s%,nid=10.0.0.1@tcp,stream=1%,object=1%,offset=seq,count=8,depth=16' \
		--order-log /tmp/order >/tmp/load.json &
	local pid=$!
	wait_for 10 '[ -e /sys/kernel/debug/nrs/svc/slots ]'
	echo stream >"$(at svc nrs_pop)"
	sleep 1
	policy svc "$1"
	wait $pid || fail "$(tail -n 5 /tmp/load.json)"
	# Requests before the level was set may be out of order.
	awk '$1 > 1500000 { if ($4 <= last[$2] && last[$2] != "") wrong++; last[$2] = $4; n++ }
		END { print n, wrong + 0; exit !(n > 500 && !wrong) }' /tmp/order || fail "out of order"
}

try 200 "order and credits under fifo" under nrs_policies=fifo
if [ -z "$debug" ]; then
	long try 200 "order and credits under fairshare" under "nrs_policies=fairshare nid_fair"
	long try 60 "order of delayed requests" delayed slots=65
	long try 60 "credits bound a newcomer's latency" newcomer
	long try 30 "streams in order under orr" streams orr
fi
long try 60 "promotions, policies and levels change concurrently" storm
summary
