#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# usage: cluster/server.sh one|two
#
# Runs one of two servers, each in a machine of its own; started by scripts/cluster.sh. Prints twice
# a second the requests of the server's users: "sample SERVER TIME WIDE OWN". TIME is the clock at
# the start plus the time since then, ms. WIDE and OWN count the requests of user 1001 and of this
# server's user. Server one also triggers events, and prints "phase TIME RATIO NAME". RATIO is the
# expected ratio of users 1001, 1002 and 1003 at the end of the phase, "-" if irrelevant. Server two
# runs until its machine is ended.
. /tests/nrs.sh
. /tests/cluster/lib.sh
set -euo pipefail
me=$1
declare -A address=([one]=10.0.0.1 [two]=10.0.0.2) user=([one]=1002 [two]=1003)

# Clock at the start of the machine, ms.
read -r up _ </proc/uptime
start=$((${EPOCHREALTIME/./} / 1000 - 10#${up/./} * 10))

# stamp: Sets $now to the time.
stamp() {
	local up
	read -r up _ </proc/uptime
	now=$((start + 10#${up/./} * 10))
}

samples() {
	local wide counters sum now
	while :; do
		stamp
		counters "$me-wide"
		sum ended "$counters"
		wide=$sum
		counters "$me-own"
		sum ended "$counters"
		echo "sample $me $now $wide $sum"
		pause 0.5
	done
}

# phase SECONDS RATIO NAME...: Prints the start of a phase, and waits for SECONDS.
phase() {
	local now
	stamp
	echo "phase $now ${*:2}"
	pause "$1"
}

# again RATIO NAME...: Starts a phase in which the agents first have to reconnect.
again() {
	phase 0 "$@"
	wait_for 30 'meets one' || fail "$(cat /tmp/one/log)"
	pause 15
}

modprobe virtio_net
wait_for 10 '[ -e /sys/class/net/eth0 ]'
ip link set lo up
ip addr add "${address[$me]}/24" dev eth0
ip link set eth0 up
module
# 200 requests per second, so that the emulator has CPU time left.
server "$me" nb0 20000000 "${user[$me]}"
configure "$me" 10.0.0.1:7447 10.0.0.2:7447
samples &
sampler=$!
if [ "$me" = two ]; then
	agent two
	wait
	exit
fi
wait_for 120 '(: </dev/tcp/10.0.0.2/7447)' 2>/dev/null
phase 12 2:1:1 without agents
agent one
again 1:1:1 agents
for seconds in 3600 -3600; do
	date -s "@$(($(date +%s) + seconds))"
	phase 12 1:1:1 "clock set by $seconds s"
done
ip link set eth0 down
pause 2
ip link set eth0 up
again 1:1:1 "after a cut of 2 s"
ip link set eth0 down
phase 60 2:1:1 network cut
ip link set eth0 up
again 1:1:1 "after a cut of 60 s"
kill -KILL "${agents[one]}"
phase 20 2:1:1 agent killed
agent one
again 1:1:1 agent back
kill -STOP "${agents[one]}"
phase 20 2:1:1 agent stopped
kill -CONT "${agents[one]}"
again 1:1:1 agent continued
# scripts/cluster.sh reads this line and ends the machine of the other server.
phase 20 1:1:0 server two killed
phase 0 - server two boots
wait_for 120 'meets one'
phase 20 1:1:1 server two back
phase 0 - end
kill $sampler
wait $sampler || true
agent_status one >/out/status.json
kill -TERM "${agents[one]}"
wait "${agents[one]}"
cp /tmp/one/log /out/
clean_up
