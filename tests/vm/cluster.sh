#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Two servers in one machine, each a service with an agent: user 1001 uses both, 1002 and 1003 one each. Without agents each service
# is fair by itself, so that 1001 gets twice as much as each of the others; with agents all three get the same.
. /tests/nrs.sh
. /tests/cluster/lib.sh
loads+=(nrs-agent)

# Time in which the rule has to come to its end, s: 20 deltas.
settling=2

setup() {
	[ -x /bin/nrs-agent ] || fail "no nrs-agent: build-tools.sh"
	ip link set lo up
	module
	server one nb0 8000000 1002
	server two nb1 8000000 1003
	for name in one two; do configure $name 127.0.0.1:7447 127.0.0.1:7448; done
}

# together: both agents, until they hear each other.
together() {
	agent one
	agent two
	heard
}

heard() {
	wait_for 20 'meets one && meets two' || fail "$(agent_says one) $(agent_says two) $(cat /tmp/*/log)"
}

# shares RATIO: what 1001 gets is RATIO times what 1002 and 1003 get each, within 5 %; all together in $all.
shares() {
	local got a b own other wide
	got=$(window "$(brief 3 8)" ended one-wide two-wide one-own two-own)
	read -r a b own other <<<"$got"
	wide=$((a + b)) all=$((a + b + own + other))
	say "requests: 1001 $wide ($a, $b), 1002 $own, 1003 $other, wanted $1:1:1; CPUs busy $(</tmp/busy) %"
	within 5 $((own * $1)) $wide && within 5 $((other * $1)) $wide || fail "not $1:1:1 within 5 %: $got $(agent_says one)"
}

# fair: the three get the same again, after the time to settle.
fair() {
	sleep $settling
	shares 1
}

# sharing: both servers, with agents that have made them fair.
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
	# The disks are as busy as before.
	within 2 "$all" "$before" || fail "$all with agents, $before without"
	kill -TERM "${agents[two]}"
	wait "${agents[two]}"
	# The other one stops counting at once, factors go back within ten steps of 0.32 s.
	sleep 4
	shares 2
	kill -TERM "${agents[one]}"
	wait "${agents[one]}"
	[ ! -s /tmp/two/log ] || fail "$(cat /tmp/two/log)"
}

# With an agent that has died or hangs, each service ends up fair by itself, and is fair with the other again when there is an agent.
gone() {
	sharing
	kill -KILL "${agents[two]}"
	wait "${agents[two]}" || true
	# Its lease of 3.2 s, ten steps of 0.32 s, and 16 deltas until the other one begins to forget it.
	sleep 10
	shares 2
	agent two
	heard
	fair
	kill -STOP "${agents[two]}"
	sleep 10
	shares 2
	kill -CONT "${agents[two]}"
	heard
	fair
	# Nothing was made up for: steps that were missed are left out.
	agent_says two | grep -E '"missed": [1-9]' || fail "$(agent_says two)"
}

# cut SECONDS: nothing passes between the servers for that long.
cut() {
	ip link set lo down
	sleep "$1"
	ip link set lo up
	heard
	fair
}

network() {
	sharing
	cut 2
	cut 60
}

# The clocks that servers share are set while they share.
clock() {
	sharing
	local now
	for now in +3600 -7200 +3600; do
		date -s "@$(($(date +%s) + now))"
		fair
	done
}

# What is set meanwhile: weights count as they are set, on both servers; another mode or cost model on one server is another realm.
settings() {
	sharing
	for name in one two; do echo uid:1001:2 >"$(at $name nrs_fairshare_weights)"; done
	sleep $settling
	shares 2
	for name in one two; do echo uid:1001:1 >"$(at $name nrs_fairshare_weights)"; done
	fair
	# The other one leaves with its mode, and factors go back.
	local got own wide
	policy two 'fairshare gid_fair'
	sleep 4
	got=$(window 3 ended one-wide one-own)
	read -r wide own <<<"$got"
	say "requests: $wide of 1001 and $own of 1002 on one server, wanted 1:1"
	within 5 "$wide" "$own" || fail "$got $(agent_says one)"
	policy two fifo
	sleep 1
	policy two 'fairshare uid_fair'
	heard
	fair
}

try 120 "a job on two servers gets one share, with agents" striped
long try 120 "an agent that dies or hangs" gone
long try 180 "a network that is cut for 2 and 60 s" network
long try 60 "clocks that are set" clock
long try 120 "weights, modes and policies that change" settings
remarks '^requests:'
summary
