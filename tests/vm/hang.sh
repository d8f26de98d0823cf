#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# One of two devices of a service hangs: the other device continues, and after a resume all requests
# are served.
. /tests/nrs.sh

large=$(slow 4m 256k) small=$(slow 1m 128k)

# Creates clients a, on a device that can be suspended, and b, of one service.
setup() {
	module
	lower nb0 memory_backed=1
	lower nb1 memory_backed=1
	dm_create lin "0 $(sectors /dev/nb0) linear /dev/nb0 0"
	client a /dev/mapper/lin svc
	client b /dev/nb1 svc
}

# hanging SLOTS POLICY: Verifies that b is served while the device of a hangs.
hanging() {
	setup
	policy svc "$2"
	echo "$1" >"$(at svc slots)"
	dm suspend --nolockfs lin
	local pids=() i before
	for i in 0 1 2 3; do
		verified a --offset=$((i * 4))m --size="$small" &
		pids+=($!)
	done
	saturated a
	before=$(counter a ended)
	# Only the device that hangs has queued requests.
	verified b --size="$large"
	[ "$(counter b ended)" -ge "$(slow 1024 64)" ] && [ "$(counter b held)" = 0 ] ||
		fail "$(dm status b)"
	[ "$(counter a ended)" = "$before" ] || fail "the device does not hang: $(dm status a)"
	# Policies and slots can still be changed.
	policy svc fifo
	echo "$(($1 + 1))" >"$(at svc slots)"
	dm resume lin
	for i in "${pids[@]}"; do wait "$i"; done
	wait_for 5 '[ $(counter a held) = 0 ]' || fail "$(dm status a)"
	[ "$(counter a ended)" -ge "$(slow 1024 128)" ] || fail "$(dm status a)"
}

# Verifies that a client can leave while the other device of its service hangs.
leaving() {
	setup
	echo 4 >"$(at svc slots)"
	dm suspend --nolockfs lin
	verified a --size="$small" &
	local writer=$!
	saturated a
	dm suspend b
	dm resume b
	verified b --size="$small"
	dm_remove b
	dm resume lin
	wait "$writer"
}

# Verifies that requests whose slots are never released are dispatched after stall_ms, logged once
# and counted.
stalling() {
	module
	lower nb0 memory_backed=1
	dm_create lin "0 $(sectors /dev/nb0) linear /dev/nb0 0"
	client a /dev/mapper/lin svc
	policy svc fairshare
	echo 1 >"$(at svc slots)"
	echo 300 >"$(at svc stall_ms)"
	dm suspend --nolockfs lin
	verified a --size="$small" &
	local writer=$!
	wait_for 30 '[ $(counter a queued) -ge 1 ] && [ $(counter a held) = 0 ]' ||
		fail "$(dm status a)"
	wait_for 10 'grep -qE "stalls: [1-9]" "$(at svc clients)"' || fail "$(cat "$(at svc clients)")"
	[ "$(dmesg | grep -c 'no request dispatched for 300 ms')" = 1 ] ||
		fail "not logged exactly once"
	dm resume lin
	wait "$writer"
	wait_for 5 'grep -q "active: 0, overflow" "$(at svc clients)"' ||
		fail "$(cat "$(at svc clients)")"
}

try 60 "fairshare, 4 slots: the other device continues" hanging 4 fairshare
long try 60 "fifo, 2 slots: the other device continues" hanging 2 fifo
long try 60 "a client leaves while another's device hangs" leaving
long try 60 "stalled requests are dispatched" stalling
summary
