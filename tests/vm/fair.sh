#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Shares. The device decides how much is done, the scheduler for whom: a disk that completes each request after 8 ms,
# 8 slots, requests waiting on both sides all the time, CPUs that are idle for a good part.
. /tests/nrs.sh

slots=8

# setup [WORDS-A [WORDS-B]]: two devices on one disk, one service.
setup() {
	module
	slow_lower nb0 8000000 size=1024
	# shellcheck disable=SC2086
	client a /dev/nb0 svc ${1:-}
	# shellcheck disable=SC2086
	client b /dev/nb0 svc ${2:-}
	echo $slots >"$(at svc slots)"
	[ "$(cat "$(at svc nrs_fairshare_opp_threshold)")" = 0 ]
}

# shares SECONDS COUNTER: what a and b got in that time, in $a and $b; the CPUs must have had time to spare.
shares() {
	saturated a b
	# What was queued before the start has gone.
	window 1 ended a b >/dev/null
	local got
	got=$(window "$@" a b)
	read -r a b <<<"$got"
	say "$2 in $1 s: a $a, b $b; CPUs busy $(cat /tmp/busy) %"
	[ "$(counter a held)" -ge 2 ] && [ "$(counter b held)" -ge 2 ] || fail "a backlog ended: $(dm status)"
	[ "$(cat /tmp/busy)" -lt 60 ] || fail "CPUs busy $(cat /tmp/busy) %, the result would say nothing"
}

# One user with 32 processes, another with one.
uid() {
	setup
	policy svc 'fairshare uid_fair'
	begin a as=1001 --numjobs=32
	begin b as=1002
	# All of them.
	saturated 500 a
	shares "$(brief 4 10)" bytes
	within 5 "$a" "$b"
}

# The same under fifo is not fair: this is what the others prove to be different.
fifo() {
	setup
	policy svc fifo
	begin a as=1001 --numjobs=32
	begin b as=1002
	shares 4 bytes
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

# By requests, a request of 64 KiB is worth one of 4 KiB.
rpcs() {
	setup
	set_to svc nrs_fairshare_cost_model rpcs
	policy svc 'fairshare uid_fair'
	begin a as=1001 --bs=4k --numjobs=4
	begin b as=1002 --bs=64k
	shares 5 ended
	within 5 "$a" "$b"
}

# Jobs are told apart by the name of the program.
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

# Clients are told apart by what their tables say; all else is the same.
nid() {
	setup 'nid 10.0.0.1@tcp' 'nid 10.0.0.2@tcp'
	policy svc 'fairshare nid_fair'
	begin a --numjobs=8
	begin b
	shares 5 bytes
	within 5 "$a" "$b" || fail "$(cat "$(at svc nrs_fairshare_stats)")"
}

# cost UID: pages that the service counted for a user.
cost() {
	awk -v e="\"uid:$1\"" '/entity:/ { on = $3 == e } on && /cost_pages:/ { print $2 }' <<<"$2"
}

# Two users of one device, by the service's own statistics.
one_device() {
	setup
	dm_remove b
	policy svc 'fairshare uid_fair'
	begin a as=1001 --numjobs=8
	begin a as=1002
	wait_for 20 "grep -q uid:1001 $(at svc nrs_fairshare_stats) && grep -q uid:1002 $(at svc nrs_fairshare_stats)"
	saturated a
	window 1 ended a >/dev/null
	local before after
	before=$(cat "$(at svc nrs_fairshare_stats)")
	window 5 ended a >/dev/null
	after=$(cat "$(at svc nrs_fairshare_stats)")
	a=$(($(cost 1001 "$after") - $(cost 1001 "$before")))
	b=$(($(cost 1002 "$after") - $(cost 1002 "$before")))
	say "pages: $a and $b"
	within 5 "$a" "$b"
}

# solo POLICY: requests that a lone user gets in 3 s.
solo() {
	policy svc "$1"
	window 0.5 ended a >/dev/null
	window 3 ended a
}

# Who is alone loses nothing by a policy that shares.
alone() {
	setup
	dm_remove b
	begin a as=1001
	saturated a
	local fifo fair fifo2 fair2
	fifo=$(solo fifo) fair=$(solo fairshare) fair2=$(solo fairshare) fifo2=$(solo fifo)
	say "requests in 3 s: fifo $fifo, fairshare $fair, fairshare $fair2, fifo $fifo2; CPUs busy $(cat /tmp/busy) %"
	more 0.95 "$(printf '%s\n' $fair $fair2 | sort -n | tail -n 1)" "$(printf '%s\n' $fifo $fifo2 | sort -n | tail -n 1)"
}

try 60 "uid_fair: 32 processes against one, equal bytes within 5 %" uid
long try 60 "fifo: the same is unequal" fifo
try 60 "uid_fair: 4 KiB against 64 KiB, equal bytes within 5 %" sizes
long try 60 "cost model rpcs: 4 KiB against 64 KiB, equal requests within 5 %" rpcs
long try 60 "jobid_fair: two programs, equal bytes within 5 %" jobid
long try 60 "nid_fair: two clients, equal bytes within 5 %" nid
long try 60 "uid_fair: two users of one device, equal pages within 5 %" one_device
long try 60 "a lone user gets 95 % of what fifo gives" alone
remarks '^(bytes|ended|pages|requests)'
summary
