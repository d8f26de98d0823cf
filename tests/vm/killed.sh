#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Queued requests can be released: after a killed submitter, and by an operator's drain.
. /tests/nrs.sh

setup() {
	module
	slow_lower nb0 20000000
	client a /dev/nb0 svc
	policy svc "$1"
	echo 1 >"$(at svc slots)"
	load a --numjobs=4 --iodepth=32 --time_based --runtime=60 >/dev/null 2>&1 &
	wait_for 30 '[ $(counter a held) -ge 100 ]' || fail "$(dm status a)"
}

# kill_load: Kills the load's processes.
kill_load() {
	local pid
	for pid in $(pidof fio); do kill -KILL "$pid" 2>/dev/null || true; done
}

# Verifies that the processes exit after their requests, 128 times 20 ms with one slot, and that the
# device works as before.
killed() {
	setup "$1"
	kill_load
	wait_for 15 '! pidof fio >/dev/null' || fail "still there: $(pidof fio), $(dm status a)"
	wait_for 5 '[ $(counter a held) = 0 ]' || fail "$(dm status a)"
	[ $(($(counter a passed) + $(counter a queued))) = "$(counter a ended)" ] ||
		fail "$(dm status a)"
	load a --io_size=40k >/dev/null
	dm_remove a
}

# Verifies that the drain message dispatches all queued requests at once.
drained() {
	setup "$1"
	kill_load
	[ "$(counter a held)" -ge 50 ] || fail "too late for the test: $(dm status a)"
	dm message a 0 drain
	[ "$(counter a held)" -le 1 ] || fail "queued after drain: $(dm status a)"
	wait_for 2 '! pidof fio >/dev/null' || fail "still there: $(pidof fio), $(dm status a)"
	# Later requests are queued again.
	load a --numjobs=2 --time_based --runtime=60 >/dev/null 2>&1 &
	saturated a
}

for name in fairshare $(brief '' fifo); do
	try 60 "$name: a killed submitter's requests end" killed "$name"
	try 60 "$name: drain dispatches all requests" drained "$name"
done
summary
