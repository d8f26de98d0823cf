#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Shares. The device decides how much is done, the scheduler for whom: a disk that completes each request after 8 ms,
# 8 slots, requests waiting on both sides all the time, CPUs that are idle for a good part.
. /tests/nrs.sh

slots=8

# setup: two devices on one disk, one service.
setup() {
	module
	slow_lower nb0 8000000 size=1024
	sharer a /dev/nb0 svc
	sharer b /dev/nb0 svc
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
	[ "$(counter a held)" -ge 2 ] && [ "$(counter b held)" -ge 2 ] || fail "a backlog ended: $(status)"
	idle_time "$(cat /tmp/busy)"
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
	# The same under fifo is not fair, so that this means something.
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

try 60 "uid_fair: 32 processes against one, equal bytes within 5 %" uid
try 60 "uid_fair: 4 KiB against 64 KiB, equal bytes within 5 %" sizes
long try 60 "jobid_fair: two programs, equal bytes within 5 %" jobid
remarks '^(bytes|ended|pages)'
summary
