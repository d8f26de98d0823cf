#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Two servers in one machine, each a service with an agent: user 1001 uses both, users 1002 and 1003
# one each. Without agents each service is fair by itself, so that user 1001 gets twice as much as
# the others; with agents all three get the same.
. /tests/nrs.sh
. /tests/cluster/lib.sh
loads+=(nrs-agent)

# Time for the shares to settle, s: 20 deltas.
settling=2

setup() {
	[ -x /bin/nrs-agent ] || fail "no nrs-agent: build-tools.sh"
	ip link set lo up
	module
	server one nb0 8000000 1002
	server two nb1 8000000 1003
	for name in one two; do configure $name 127.0.0.1:7447 127.0.0.1:7448; done
}

# together: Starts both agents, and waits until they are connected.
together() {
	agent one
	agent two
	wait_connected
}

wait_connected() {
	wait_for 20 'meets one && meets two' ||
		fail "$(agent_status one) $(agent_status two) $(cat /tmp/*/log)"
}

# shares RATIO: Verifies that user 1001 gets RATIO times as much as users 1002 and 1003 each, within
# 5 %. Sets $all to the total.
shares() {
	local got a b own other wide
	got=$(window "$(brief 3 8)" ended one-wide two-wide one-own two-own)
	read -r a b own other <<<"$got"
	wide=$((a + b)) all=$((a + b + own + other))
	say "requests: 1001 $wide ($a, $b), 1002 $own, 1003 $other, wanted $1:1:1;" \
		"CPUs busy $(</tmp/busy) %"
	within 5 $((own * $1)) $wide && within 5 $((other * $1)) $wide ||
		fail "not $1:1:1 within 5 %: $got $(agent_status one)"
}

# fair: Verifies equal shares of the three users after the settling time.
fair() {
	sleep $settling
	shares 1
}

# sharing: Starts both servers, and agents that make the shares fair.
sharing() {
	setup
	together
	fair
}

striped() {
	setup
	local before
	shares 2
	before=$all
	together
	fair
	# The utilisation of the disks is unchanged.
	within 2 "$all" "$before" || fail "$all with agents, $before without"
	kill -TERM "${agents[two]}"
	wait "${agents[two]}"
	# The other agent stops counting at once; factors return within ten steps of 0.32 s.
	sleep 4
	shares 2
	kill -TERM "${agents[one]}"
	wait "${agents[one]}"
	[ ! -s /tmp/two/log ] || fail "$(cat /tmp/two/log)"
}

# Verifies that each service is fair by itself after its agent is killed or stopped, and fair with
# the other one when the agent runs again.
gone() {
	sharing
	kill -KILL "${agents[two]}"
	wait "${agents[two]}" || true
	# The lease of 3.2 s, ten steps of 0.32 s, and 16 deltas until the rates of the silent server
	# start to fade.
	sleep 10
	shares 2
	agent two
	wait_connected
	fair
	kill -STOP "${agents[two]}"
	sleep 10
	shares 2
	kill -CONT "${agents[two]}"
	wait_connected
	fair
	# Missed steps are skipped, not made up for.
	agent_status two | grep -E '"missed": [1-9]' || fail "$(agent_status two)"
}

# cut SECONDS: Cuts the connection between the servers for that long.
cut() {
	ip link set lo down
	sleep "$1"
	ip link set lo up
	wait_connected
	fair
}

network() {
	sharing
	cut 2
	cut 60
}

# Sets the shared clock while both agents run.
clock() {
	sharing
	local now
	for now in +3600 -7200 +3600; do
		date -s "@$(($(date +%s) + now))"
		fair
	done
}

# Changes settings meanwhile: weights take effect on both servers as set; a different mode or cost
# model makes a server part of another realm.
settings() {
	sharing
	for name in one two; do echo uid:1001:2 >"$(at $name nrs_fairshare_weights)"; done
	sleep $settling
	shares 2
	for name in one two; do echo uid:1001:1 >"$(at $name nrs_fairshare_weights)"; done
	fair
	# The server leaves the realm because of its mode, and factors return to one.
	local got own wide
	policy two 'fairshare gid_fair'
	sleep 4
	got=$(window 3 ended one-wide one-own)
	read -r wide own <<<"$got"
	say "requests: $wide of 1001 and $own of 1002 on one server, wanted 1:1"
	within 5 "$wide" "$own" || fail "$got $(agent_status one)"
	policy two fifo
	sleep 1
	policy two 'fairshare uid_fair'
	wait_connected
	fair
}

try 120 "a job on two servers gets one share, with agents" striped
long try 120 "an agent is killed or hangs" gone
long try 180 "the network is cut for 2 and 60 s" network
long try 60 "the clock is set" clock
long try 120 "weights, modes and policies change" settings
remarks '^requests:'
summary
