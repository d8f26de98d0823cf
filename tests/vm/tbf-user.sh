#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Rates of tbf by what block devices do not have, and high priority; with /dev/nrs.
. /tests/nrs.sh

# limited TYPE RULES CLIENT...: Loads a service with a policy and rules, one per line, by clients
# NAME=EXPECTED:SPEC. EXPECTED is requests per second, or + for more than any limit here.
limited() {
	local type=$1 rules=$2 rule client name want args=() got
	shift 2
	module
	mkdir /sys/kernel/config/nrs/svc
	policy svc "$type"
	while read -r rule; do
		[ -z "$rule" ] || echo "$rule" >"$(at svc nrs_tbf_rule)" ||
			fail "$rule: $(cat "$(at svc nrs_tbf_rule_error)")"
	done <<<"$rules"
	for client; do args+=(--client "name=${client%%=*},depth=8,${client#*:}"); done
	nrs-test load --service svc --seconds 6 --warmup 1 --busy 2000 "${args[@]}" >/tmp/load.json
	for client; do
		name=${client%%=*} want=${client#*=} want=${want%%:*} \
			got=$(of_load /tmp/load.json "$name" served)
		say "$name: $got in 6 s, wanted $want per second"
		if [ "$want" = + ]; then
			[ "$got" -ge 600 ] || fail "$name is throttled: $got"
		else
			within 5 "$got" $((want * 6)) ||
				fail "$name: $got in 6 s, wanted $((want * 6));" \
					"$(cat "$(at svc nrs_tbf_rule)" "$(at svc nrs_tbf_stats)")"
		fi
	done
	rmdir /sys/kernel/config/nrs/svc
}

by_nid() {
	limited 'tbf nid' '
		start some nid={10.0.0.[1,3]@tcp} rate=40
		start net {192.168.0.0/16@tcp 5@gni} 20
		start six nid={2001:db8::/32@tcp1} rate=30' \
		one=40:nid=10.0.0.1@tcp two=+:nid=10.0.0.2@tcp three=40:nid=10.0.0.3@tcp \
		net=20:nid=192.168.7.9@tcp gni=20:nid=5@gni six=30:nid=2001:db8::7@tcp1 \
		other=+:nid=2001:db8::7@tcp
}

# Verifies metadata operations beside data.
by_operation() {
	limited 'tbf opcode' '
		start meta opcode={mds_reint mds_getattr} rate=40
		start close opcode={mds_close} rate=20' \
		one=40:opcode=mds_reint two=40:opcode=mds_getattr three=20:opcode=mds_close \
		data=+:opcode=ost_write
}

# Verifies node maps, alone and with an operation.
by_node_map() {
	limited 'tbf nodemap+opcode' '
		start any nodemap={7 8 9} rate=20
		start some nodemap={7}&opcode={ost_read} rate=40' \
		one=40:nodemap=7,opcode=ost_read two=20:nodemap=7,opcode=ost_write \
		three=20:nodemap=9 other=+:nodemap=10
}

# Verifies that requests of high priority overtake the others, and leave them a part.
priority() {
	module
	mkdir /sys/kernel/config/nrs/svc
	policy svc fifo
	echo 4 >"$(at svc slots)"
	nrs-test load --service svc --seconds 6 --warmup 1 --busy 4000 \
		--client name=high,depth=64,priority=high --client name=low,depth=64 >/tmp/load.json
	local high low
	high=$(of_load /tmp/load.json high served) low=$(of_load /tmp/load.json low served)
	say "high $high, regular $low"
	# high_priority_ratio is 10, and one of four slots is reserved.
	more 5 "$high" "$low" && more 1 $((low * 15)) "$high"
	rmdir /sys/kernel/config/nrs/svc
}

try 60 "limits by operation" by_operation
try 60 "limits by node map, and operation" by_node_map
try 60 "high priority beside regular requests" priority
long try 60 "limits by network identifier" by_nid
summary
