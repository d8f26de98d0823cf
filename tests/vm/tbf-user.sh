#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Rates of tbf by network identifier, which block devices do not have; with /dev/nrs.
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

long try 60 "limits by network identifier" by_nid
summary
