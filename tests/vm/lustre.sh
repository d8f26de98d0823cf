#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# lustre: the policies of nrs in ptlrpc, of which tests/lustre is a stand-in: started by name,
# switched under load, unloaded.
. /tests/nrs.sh

ptlrpc=/sys/module/ptlrpc/parameters
services=/sys/kernel/config/nrs

# setup: Loads all three modules.
setup() {
	module
	[ -d $ptlrpc ] || insmod /ptlrpc.ko
	[ -d /sys/module/nrs_lustre ] || insmod /nrs_lustre.ko
}

teardown() {
	rmmod nrs_lustre
	rmmod ptlrpc
}

# select_policy TEXT...: Writes TEXT to nrs_policies; retries while a policy is stopping.
select_policy() {
	local said round
	for round in {1..100}; do
		if said=$( (echo "$*" >$ptlrpc/nrs_policies) 2>&1); then return 0; fi
		case $said in *'temporarily unavailable'*) sleep 0.1 ;; *) fail "$*: $said" ;; esac
	done
	fail "$*: $said"
}

# load COUNT: Submits requests; prints the failures.
load() {
	local before status=0
	before=$(dmesg | wc -l)
	echo "$1" >$ptlrpc/load || status=$?
	dmesg | tail -n +$((before + 1)) | grep -o 'ptlrpc: .*' || true
	return $status
}

# shows POLICY: Verifies that the policy is started on both heads of the nrs service.
shows() {
	[ "$(grep -A 1 "name: $1\$" "$(at ost_io nrs_policies)" | grep -c 'state: started')" = 2 ] ||
		fail "$(cat "$(at ost_io nrs_policies)")"
}

# change POLICY...: Changes a parameter of a policy that has requests, which restarts it, or a rule.
change() {
	case $1 in
	fairshare) set_to ost_io nrs_fairshare_mode nid_fair ;;
	nrs_tbf)
		set_to ost_io nrs_tbf_rule 'start slow jobid={job.1} rate=50'
		set_to ost_io nrs_tbf_rule 'change slow rate=1000000'
		;;
	esac
}

# each COUNT: Runs each policy under load, and replaces it.
each() {
	local pid
	setup
	load "$1"
	for policy in 'fairshare uid_fair' 'fairshare uid+jobid' 'nrs_tbf jobid' 'qbm' 'reg fairshare' \
		fifo; do
		load "$1" >/tmp/load.txt 2>&1 &
		pid=$!
		sleep 0.1
		case $policy in reg*) policy="fairshare reg gid+uid" ;; esac
		select_policy "$policy"
		# shellcheck disable=SC2086 # words
		change $policy
		wait $pid || fail "$policy: $(cat /tmp/load.txt)"
		cat /tmp/load.txt
	done
	load "$1"
	teardown
}

# Verifies that parameters exist before a policy is started, and take effect.
parameters() {
	setup
	echo uid_then_jobid_fair >"$(at ost_io nrs_fairshare_mode)"
	select_policy fairshare
	shows fairshare
	[ "$(<"$(at ost_io nrs_fairshare_mode)")" = uid_then_jobid_fair ]
	expect_errno EBUSY "$(at ost_io nrs_policies)" fifo
	expect_errno EINVAL $ptlrpc/nrs_policies 'nrs_tbf nothing'
	shows fairshare
	[ "$(<"$(at ost_io nrs_fairshare_mode)")" = uid_then_jobid_fair ]
	select_policy fifo
	teardown
}

# Verifies that requests that a rule throttles are sent when eligible, and at once when the rule
# changes.
withheld() {
	local pid start=${EPOCHREALTIME/./}
	setup
	select_policy nrs_tbf uid
	echo 'start slow uid={1000} rate=100' >"$(at ost_io nrs_tbf_rule)"
	load 1000
	start=$(((${EPOCHREALTIME/./} - start) / 1000))
	# A fifth of 2000 requests, in two partitions with two heads each.
	say "limited: $start ms"
	[ $start -ge 1000 ] || fail "$start ms"
	echo 'change slow rate=1' >"$(at ost_io nrs_tbf_rule)"
	load 1000 >/tmp/load.txt 2>&1 &
	pid=$!
	sleep 1
	kill -0 $pid
	echo 'change slow rate=1000000' >"$(at ost_io nrs_tbf_rule)"
	wait_for 10 "! kill -0 $pid 2>/dev/null" || fail "not woken"
	wait $pid || fail "$(cat /tmp/load.txt)"
	select_policy fifo
	teardown
}

# Verifies that a policy whose requests a rule throttles for long is replaced at once: by itself
# with another argument, in one head, and by fifo.
replaced() {
	local pid start
	setup
	select_policy nrs_tbf uid
	echo 'start slow uid={1000} rate=100B/s' >"$(at ost_io nrs_tbf_rule)"
	load 1000 >/tmp/load.txt 2>&1 &
	pid=$!
	sleep 1
	kill -0 $pid
	start=${EPOCHREALTIME/./}
	select_policy nrs_tbf reg jobid
	select_policy fifo
	start=$(((${EPOCHREALTIME/./} - start) / 1000))
	say "replaced: $start ms"
	[ $start -lt 5000 ] || fail "$start ms"
	wait_for 10 "! kill -0 $pid 2>/dev/null" || fail "requests are still throttled"
	wait $pid || fail "$(cat /tmp/load.txt)"
	teardown
}

# Verifies that a service that an administrator made keeps its number of partitions, and outlives
# its clients.
administrator() {
	module
	mkdir $services/ost_io
	echo 1 >$services/ost_io/cpts
	setup
	expect_errno EINVAL $ptlrpc/nrs_policies 'fairshare uid_fair'
	rmdir $services/ost_io
	mkdir $services/ost_io
	echo 2 >$services/ost_io/cpts
	select_policy fairshare uid_fair
	shows "fairshare uid_fair"
	load 1000
	select_policy fifo
	teardown
	rmdir $services/ost_io
}

# Verifies that a started policy holds the module, and that the module does not load without ptlrpc.
refusals() {
	setup
	select_policy fairshare uid_fair
	if rmmod nrs_lustre; then fail "the module was unloaded"; fi
	select_policy fifo
	teardown
	if insmod /nrs_lustre.ko; then fail "without ptlrpc"; fi
}

try 120 "each policy under load, and its replacement" each "$(brief 2000 20000)"
try 20 "parameters before a policy is started" parameters
try 60 "throttled requests, and a change of their rule" withheld
try 60 "a throttled policy is replaced at once" replaced
try 20 "a service that an administrator made" administrator
try 20 "a started policy holds the module" refusals
remarks '^(limited|replaced|ptlrpc: [0-9])'
summary
