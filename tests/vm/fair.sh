#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Shares. The device limits the throughput, and the scheduler decides the shares: a disk that
# completes each request after 8 ms, 8 slots, both sides always backlogged, CPUs with much idle
# time.
. /tests/nrs.sh

slots=8

# setup: Creates two devices on one disk, and one service.
setup() {
	module
	slow_lower nb0 8000000 size=1024
	sharer a /dev/nb0 svc
	sharer b /dev/nb0 svc
	echo $slots >"$(at svc slots)"
	[ "$(cat "$(at svc nrs_fairshare_opp_threshold)")" = 0 ]
}

# shares SECONDS COUNTER: Sets $a and $b to the counts of a and b in that time; the CPUs must have
# had idle time.
shares() {
	saturated a b
	# Requests queued before the start are done.
	window 1 ended a b >/dev/null
	local got
	got=$(window "$@" a b)
	read -r a b <<<"$got"
	say "$2 in $1 s: a $a, b $b; CPUs busy $(cat /tmp/busy) %"
	[ "$(counter a held)" -ge 2 ] && [ "$(counter b held)" -ge 2 ] ||
		fail "a backlog ended: $(status)"
	idle_time "$(cat /tmp/busy)"
}

# Verifies equal shares of a user with 32 processes and a user with one.
uid() {
	setup
	policy svc 'fairshare uid_fair'
	begin a as=1001 --numjobs=32
	begin b as=1002
	# Waits until all processes have queued requests.
	saturated 500 a
	shares "$(brief 4 10)" bytes
	within 5 "$a" "$b"
	# fifo is not fair here, so the check above is meaningful.
	policy svc fifo
	shares 2 bytes
	more 3 "$a" "$b"
}

sizes() {
	setup
	policy svc 'fairshare uid_fair'
	begin a as=1001 --bs=4k --numjobs=4
	begin b as=1002 --bs=64k
	shares "$(brief 4 10)" bytes
	within 5 "$a" "$b"
}

# Verifies equal shares of jobs, identified by the name of the program.
jobid() {
	setup
	policy svc 'fairshare jobid_fair'
	local name
	for name in alpha beta; do ln -sf /bin/fio /tmp/$name; done
	fio() { /tmp/alpha "$@"; }
	begin a --numjobs=8
	fio() { /tmp/beta "$@"; }
	begin b
	shares 5 bytes
	within 5 "$a" "$b" || fail "$(cat "$(at svc nrs_fairshare_stats)")"
}

# policy_counter NAME: Prints a counter of the policy as a whole.
policy_counter() {
	grep -o "$1: [0-9]*" "$(at svc nrs_policies)" | awk '{ sum += $2 } END { print sum }'
}

# one_at_a_time [PERMILLE [SLOTS]]: Verifies that slots, one or all, are kept free for a user with
# one process that sends one request at a time, for not more than their part of the time.
one_at_a_time() {
	local was total part=${1:-10} free=${2:-one} held used unused
	setup
	policy svc 'fairshare uid_fair'
	set_to svc nrs_fairshare_hold_permille 0
	begin a as=1001 --numjobs=4
	begin b as=1002 --iodepth=1
	saturated 48 a
	read -r a was < <(window 4 ended a b)
	total=$((a + was))
	set_to svc nrs_fairshare_hold "$free"
	set_to svc nrs_fairshare_hold_permille "$part"
	window 1 ended a b >/dev/null
	read -r a b < <(window 4 ended a b)
	used=$(policy_counter holds_used) unused=$(policy_counter holds_unused)
	held=$(policy_counter held_ns)
	say "without: $was of $total; with: $b of $((a + b)); used $used, unused $unused, $held ns"
	# On the scheduler it has 2.4 % fewer: 446 of 457, with one slot or all.
	more 0.95 "$b" "$was"
	# The other device of the service does not take the same time in each window.
	[ "$free" = all ] || within $((${NRS_BESIDE:+2} + 2)) $((a + b)) "$total"
	[ "$used" -gt "$unused" ]
	# Of 5.x s, and the credit for 100 ms at the start.
	more 1 $((5600000 * part)) "$held"
}

# Verifies that 98 of 100 requests of a user with one process that sends one request at a time are
# within a latency that is aimed for, and that a latency below the time of a request is given up.
aimed() {
	local within beyond
	setup
	policy svc 'fairshare uid_fair'
	set_to svc nrs_fairshare_hold_permille 1000
	set_to svc nrs_fairshare_latency_us 9000
	begin a as=1001 --numjobs=4
	begin b as=1002 --iodepth=1
	saturated 48 a
	window 4 ended a b >/dev/null
	within=$(policy_counter latency_within) beyond=$(policy_counter latency_beyond)
	read -r a b < <(window 12 ended a b)
	within=$(($(policy_counter latency_within) - within))
	beyond=$(($(policy_counter latency_beyond) - beyond))
	say "$b of $((a + b)); within $within, beyond $beyond; $(policy_counter latency_slots) slots," \
		"$(policy_counter held_permille) permille"
	more 0.9 "$within" "$b" && more 1 "$within" $((50 * beyond))
	[ "$(policy_counter latency_given_up)" = 0 ]
	set_to svc nrs_fairshare_latency_us 4000
	wait_for 20 '[ "$(policy_counter latency_given_up)" = 1 ]' ||
		fail "$(cat "$(at svc nrs_policies)")"
}

try 60 "uid_fair: 32 processes against one, equal bytes within 5 %" uid
try 60 "uid_fair: 4 KiB against 64 KiB, equal bytes within 5 %" sizes
try 60 "a slot kept free for one request at a time, within the credit" one_at_a_time
try 60 "all slots kept free for one request at a time" one_at_a_time 1000 all
try 60 "a latency that is aimed for is met, or given up" aimed
long try 60 "jobid_fair: two programs, equal bytes within 5 %" jobid
remarks '^(bytes|ended|pages)'
summary
