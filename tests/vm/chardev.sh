#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# /dev/nrs: servers in user space. Needs nrs-test and the examples (scripts/build-tools.sh).
. /tests/nrs.sh

# gone SERVICE...: Waits until these services are removed.
gone() {
	local name
	for name; do
		wait_for 20 "[ ! -e /sys/kernel/debug/nrs/$name ]" ||
			fail "$name is still there: $(cat "$(at "$name" clients)")"
	done
}

# device FILE NAME: Prints a number of the device section in a report of nrs-test load.
device() {
	awk -v n="\"$2\":" \
		'/"device":/ { hit = 1 } hit && $1 == n { sub(",", "", $2); print $2; exit }' "$1"
}

# Runs the checks of nrs-test one after the other; none may leave a service behind.
interface() {
	module
	local name
	for name in $(nrs-test check --list interface); do
		nrs-test check "$name" || fail "nrs-test check $name"
		wait_for 20 '[ -z "$(ls -d /sys/kernel/debug/nrs/*/ 2>/dev/null)" ]' ||
			fail "$name: left $(ls /sys/kernel/debug/nrs)"
		say "$name"
	done
	# Arbitrary writes and ioctls have only documented results.
	nrs-test storm --seconds 2 --rest 0 device wild >/tmp/storm ||
		fail "status $?: $(grep '^finding' /tmp/storm | head -n 5)"
	gone wild
}

# Verifies that the node's mode and group decide who may open the device.
permissions() {
	module
	wait_for 10 '[ -c /dev/nrs ]'
	[ "$(stat -c '%a %u %g' /dev/nrs)" = "660 0 0" ] || fail "$(ls -l /dev/nrs)"
	local as=(setpriv --reuid 65534 --regid 65534 --clear-groups)
	refused EACCES "${as[@]}" nrs-test load --seconds 0.1 --client name=a
	chgrp 65534 /dev/nrs
	"${as[@]}" nrs-test load --seconds 20 --client name=a,requests=1 >/tmp/load.json
	[ "$(of_load /tmp/load.json a served)" -gt 0 ]
	chgrp 0 /dev/nrs
}

# Verifies that a user of the device leaves services to root, and pays for the memory of its own.
crowded() {
	module
	local group=/sys/fs/cgroup/test.crowd free charged before
	before=$(ls /sys/kernel/debug/nrs | wc -l)
	mkdir $group
	chgrp 65534 /dev/nrs
	mkfifo -m 666 /tmp/crowd
	free=$(awk '$1 == "MemFree:" { print $2 }' /proc/meminfo)
	(
		echo $BASHPID >$group/cgroup.procs
		exec prlimit --nofile=2048 setpriv --reuid 65534 --regid 65534 --clear-groups \
			nrs-test check hold s{1..1100} <>/tmp/crowd >/tmp/crowded
	) &
	wait_for 120 'grep -q holding /tmp/crowded' ||
		fail "$(ls /sys/kernel/debug/nrs | wc -l) services"
	free=$((free - $(awk '$1 == "MemFree:" { print $2 }' /proc/meminfo)))
	charged=$(($(awk '$1 == "kernel" { print $2 }' $group/memory.stat) / 1024))
	say "$(</tmp/crowded): $free KiB, $charged KiB charged"
	[ "$(</tmp/crowded)" = "holding $((768 - before))" ] || fail "$(</tmp/crowded)"
	# Root makes the others, in each way.
	lower nb0
	dm_create a "0 $(sectors /dev/nb0) nrs /dev/nb0 0 one"
	mkdir /sys/kernel/config/nrs/two
	nrs-test check attach
	[ "$charged" -ge $((free * 3 / 4)) ]
	kill -KILL $!
	wait $! || true
	rm /tmp/crowd /tmp/crowded
	chgrp 0 /dev/nrs
}

# Verifies that an open file, attached or not, holds the module.
pinned() {
	module
	exec 3<>/dev/nrs
	refused EBUSY rmmod nrs
	exec 3>&-
	rmmod nrs
	module
	mkfifo /tmp/hold
	nrs-test check hold svc <>/tmp/hold >/tmp/held &
	wait_for 10 'grep -q holding /tmp/held'
	refused EBUSY rmmod nrs
	kill -KILL $!
	wait $! || true
	rm /tmp/hold /tmp/held
	gone svc
	rmmod nrs
}

# Verifies that a signal ends a blocked read.
signals() {
	module
	local signal
	for signal in TERM INT KILL; do
		nrs-test check block >/tmp/block &
		wait_for 10 'grep -q reading /tmp/block'
		sleep 0.2
		# Shells let their background processes ignore SIGINT.
		[ "$signal" != INT ] || signal=HUP
		kill -$signal $!
		wait_for 10 "! kill -0 $! 2>/dev/null" || fail "still reading after $signal"
		wait $! || true
	done
	gone block
}

# Verifies that a service accepts either block devices or programs, but not both.
kinds() {
	module
	lower nb0
	client a /dev/nb0 svc
	refused EBUSY nrs-test load --service svc --seconds 0.1 --client name=a
	[ "$(grep -c 'client:' "$(at svc clients)")" = 1 ]
	mkdir /sys/kernel/config/nrs/conf
	mkfifo /tmp/hold
	nrs-test check hold conf <>/tmp/hold >/tmp/held &
	wait_for 10 'grep -q holding /tmp/held'
	refused EBUSY dmsetup create b --table "0 $(sectors /dev/nb0) nrs /dev/nb0 0 conf"
	grep -q 'client: "hold"' "$(at conf clients)"
	# Fields of the open file in fdinfo.
	grep -q '^nrs_service:.conf$' /proc/$!/fdinfo/* || fail "$(cat /proc/$!/fdinfo/*)"
	grep -q '^nrs_requests:.3$' /proc/$!/fdinfo/* || fail "$(cat /proc/$!/fdinfo/*)"
	kill -KILL $!
	wait $! || true
	rm /tmp/hold /tmp/held
	# The service remains; its next first client determines the kind again.
	wait_for 10 "! grep -q 'client:' $(at conf clients)"
	client b /dev/nb0 conf
	dm_remove b
	rmdir /sys/kernel/config/nrs/conf
	gone conf
}

# Verifies that a server killed with a long queue leaves nothing behind, under several policies.
killed() {
	module
	local policy round
	for policy in fifo 'fairshare uid_fair'; do
		for ((round = 0; round < $(slow 3 1); round++)); do
			nrs-test load --service svc --seconds 60 --busy 5000 --client name=a,depth=5000,uid=1 \
				--client name=b,depth=500,uid=2 >/dev/null &
			wait_for 10 '[ -e /sys/kernel/debug/nrs/svc/nrs_policies ]'
			policy svc "$policy"
			wait_for 20 '[ "$(sum held "$(<"$(at svc clients)")"; echo $sum)" -ge 1000 ]' ||
				fail "$(cat "$(at svc clients)")"
			kill -KILL $!
			wait $! || true
			gone svc
		done
	done
}

# served POLICY: Runs two clients of different depth; sets $a and $b to their served requests.
served() {
	nrs-test load --service svc --seconds 8 --warmup 2 --busy 4000 \
		--client name=a,nid=10.0.0.1@tcp,depth=24 \
		--client name=b,nid=10.0.0.2@tcp,depth=8,opcode=mds_reint >/tmp/load.json &
	local pid=$!
	wait_for 10 '[ -e /sys/kernel/debug/nrs/svc/slots ]'
	echo 4 >"$(at svc slots)"
	policy svc "$1"
	sleep 4
	cp "$(at svc nrs_fairshare_stats)" /tmp/stats.yaml
	wait $pid || fail "$(cat /tmp/load.json)"
	a=$(of_load /tmp/load.json a served) b=$(of_load /tmp/load.json b served)
	say "$1: $a $b"
}

# Verifies equal shares of clients by network identifier, at any depth. Block devices cannot provide
# many identifiers.
shares() {
	module
	local a b
	served fifo
	within 15 "$a" "$((b * 3))" || fail "fifo: $a and $b, 3 to 1 was expected"
	served 'fairshare nid_fair'
	within 5 "$a" "$b" || fail "fairshare: $a and $b"
	grep -q 'nid:10.0.0.1@tcp' /tmp/stats.yaml && grep -q 'nid:10.0.0.2@tcp' /tmp/stats.yaml ||
		fail "$(cat /tmp/stats.yaml)"
	gone svc
}

# Verifies that all of a thousand clients in an open loop are served.
many() {
	module
	nrs-test load --service svc --seconds 5 --drain --log /tmp/log \
		--client "name=c%,nid=10.0.0.1@tcp,jobid=job.%,count=1000,rate=1" >/tmp/load.json &
	local pid=$!
	wait_for 10 '[ -e /sys/kernel/debug/nrs/svc/slots ]'
	policy svc 'fairshare nid_fair'
	wait $pid || fail "$(tail -n 3 /tmp/load.json)"
	[ "$(device /tmp/load.json completed)" = "$(device /tmp/load.json requests)" ] ||
		fail "$(tail -n 30 /tmp/load.json)"
	[ "$(awk '{ print $2 }' /tmp/log | sort -u | wc -l)" = 1000 ] ||
		fail "$(awk '{ print $2 }' /tmp/log | sort -u | wc -l) clients"
}

# Verifies that the lease reclaims the slots of lost completions.
lost() {
	module
	nrs-test load --service svc --seconds "$(slow 4 8)" --busy 1000 --lease 100 --lose 10 \
		--client name=a,depth=32 >/tmp/load.json &
	local pid=$!
	wait_for 10 '[ -e /sys/kernel/debug/nrs/svc/slots ]'
	echo 4 >"$(at svc slots)"
	wait $pid || fail "$(cat /tmp/load.json)"
	say "$(grep -E 'served|reclaimed|late' /tmp/load.json | tr -d '\n')"
	# Without a lease the load would stop after some 40 requests.
	[ "$(device /tmp/load.json reclaimed)" -ge 5 ]
	[ "$(device /tmp/load.json completed)" -ge 100 ]
}

# Starts and kills servers while policies change.
storm() {
	module
	local end=$((SECONDS + $(slow 10 20))) loops=() n pid
	for n in 1 2 3 4; do
		while [ $SECONDS -lt $end ]; do
			nrs-test load --service svc --name "n$n" --seconds 30 --busy 2000 --lease 50 --lose 7 \
				--client "name=a,depth=300,uid=$n,nid=10.0.0.$n@tcp" >/dev/null &
			pid=$!
			sleep "0.$((RANDOM % 9))"
			kill -$([ $((RANDOM % 2)) = 0 ] && echo KILL || echo TERM) $pid
			wait $pid || true
		done &
		loops+=($!)
	done
	while [ $SECONDS -lt $end ]; do
		for n in fifo fairshare 'fairshare nid_fair'; do
			{
				printf '%s\n' "$n" >"$(at svc nrs_policies)" &&
					cat "$(at svc clients)" "$(at svc nrs_policies)" >/dev/null
			} 2>/dev/null || true
			{ echo $((RANDOM % 8 + 1)) >"$(at svc slots)"; } 2>/dev/null || true
		done
		sleep 0.05
	done
	wait "${loops[@]}" || true
	gone svc
	rmmod nrs
}

# echoed TEXT [EARLIER...]: Sends a datagram to the port of the servers; the reply must be equal,
# and follow the EARLIER datagrams.
echoed() {
	local fd answer wanted
	exec {fd}<>/dev/udp/127.0.0.1/7777
	echo "$1" >&"$fd"
	for wanted in "${@:2}" "$1"; do
		# Read in one call, because the rest of a datagram is lost.
		answer=$(timeout 10 dd bs=1500 count=1 <&"$fd" 2>/dev/null) || fail "no answer to '$1'"
		[ "$answer" = "$wanted" ] || fail "'$answer' in answer to '$1'"
	done
	exec {fd}>&-
}

# Runs the example servers of the documentation, one after the other on the same port.
examples() {
	module
	ip link set lo up
	local server n
	for server in example-server example-server-c example-tokio; do
		$server &
		wait_for 10 '[ -e /sys/kernel/debug/nrs/echo ] && grep -q ":1E61 " /proc/net/udp' ||
			fail "$server: not started"
		policy echo 'fairshare nid_fair'
		for n in 1 2 3; do echoed "line $n to $server"; done
		wait_for 10 'grep -q " ended: 3" "$(at echo clients)"' ||
			fail "$server: $(cat "$(at echo clients)")"
		if [ $server = example-server-c ]; then
			# The server states 20 s.
			set_to echo at_min 30
			echoed late $'early 42500\nlate'
		fi
		kill -KILL $!
		wait $! || true
		gone echo
	done
	seq 1000 1999 >/tmp/lines
	example-fallback </tmp/lines >/tmp/printed
	[ "$(head -n 1 /tmp/printed)" = nrs ]
	tail -n +2 /tmp/printed | sort | cmp - /tmp/lines
	gone lines
	rmmod nrs
	example-fallback </tmp/lines >/tmp/printed
	[ "$(head -n 1 /tmp/printed)" = fifo ]
	tail -n +2 /tmp/printed | sort | cmp - /tmp/lines
}

# Verifies that the limit of requests is a parameter, which caps the clients' requests.
parameter() {
	module user_requests_max=64
	nrs-test load --service svc --seconds 0.9 --busy 1000000 \
		--client name=a,depth=1000 >/tmp/load.json
	[ "$(device /tmp/load.json requests)" = 64 ] || fail "$(tail -n 20 /tmp/load.json)"
	expect_errno EINVAL /sys/module/nrs/parameters/user_requests_max 63
	rmmod nrs
}

try 120 "the interface" interface
try 20 "permissions of the node" permissions
try 30 "an open file holds the module" pinned
long try 30 "a signal ends a blocked read" signals
try 30 "block devices and programs cannot share a service" kinds
try 90 "a server is killed with a long queue" killed
# The debug kernel's checkers are too slow, and checks that depend on time run without them. The
# debug kernel has no network, either.
if [ -z "$debug" ]; then
	long try 120 "a user of the device leaves services to root" crowded
	try 30 "the example servers, and one with a fallback without nrs" examples
	long try 60 "clients by network identifier get equal shares" shares
	long try 60 "a thousand clients" many
fi
long try 40 "lost completions" lost
long try 60 "servers and policies change concurrently" storm
long try 20 "the limit of requests" parameter
summary
