#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# nbdkit with the filter of examples/nbdkit-nrs-filter.c. The clients are devices of the kernel's
# nbd, and bash. Needs --more.
. /tests/nrs.sh
loads+=(nbdkit)

# serve MS [ARG...]: Lets nbdkit serve the files a and b of /mnt/exports; each read and write takes
# MS milliseconds without CPU time. Its clients have the addresses 10.0.0.1 to 10.0.0.8.
serve() {
	local n delay=$1
	shift
	wait_for 10 '! pidof nbd-client >/dev/null'
	[ ! -d /sys/module/nbd ] || rmmod nbd
	modprobe nbd nbds_max=8 max_part=0
	ip link set lo up
	for n in {1..8}; do ip addr add "10.0.0.$n/32" dev lo 2>/dev/null || true; done
	mkdir -p /mnt/exports
	mount -t tmpfs exports /mnt/exports
	truncate -s $((64 << 20)) /mnt/exports/a /mnt/exports/b
	nbdkit --filter=nrs --filter=delay file dir=/mnt/exports "delay-read=${delay}ms" \
		"delay-write=${delay}ms" "$@"
}

# connect NUMBER EXPORT: Makes /dev/nbdNUMBER a client with its own address.
connect() {
	nbd-client -b 4096 -N "$2" "10.0.0.$(($1 + 1))" 10809 "/dev/nbd$1"
	wait_for 10 "[ \$(sectors /dev/nbd$1) -gt 0 ]"
	echo none >"/sys/block/nbd$1/queue/scheduler"
	ln -s "/dev/nbd$1" "/dev/mapper/nbd$1"
}

# reads DEVICE: Prints the reads that the device has completed.
reads() {
	local ios
	read -r ios _ <"/sys/block/$1/stat"
	echo "$ios"
}

# parts NAME PERCENT FACTOR: Verifies that nbd1 has FACTOR times as many reads as nbd0 within 4 s.
parts() {
	local a b
	sleep 1
	a=$(reads nbd0) b=$(reads nbd1)
	sleep 4
	a=$(($(reads nbd0) - a)) b=$(($(reads nbd1) - b))
	say "$1: $a and $b reads in 4 s"
	within "$2" "$(awk "BEGIN { print $a * $3 }")" "$b" ||
		fail "$1: $a and $b reads, 1 to $3 was expected"
}

# Verifies the shares of two clients, the first with twice as many requests in flight.
shares() {
	module
	serve 10
	connect 0 a
	connect 1 b
	echo 2 >"$(at nbd slots)"
	begin nbd0 --iodepth=16
	begin nbd1 --iodepth=8
	policy nbd fifo
	parts fifo 15 0.5
	policy nbd 'fairshare nid_fair'
	parts 'equal clients' 5 1
	set_to nbd nrs_fairshare_weights nid:10.0.0.2@tcp:4
	parts 'clients 1 to 4' 8 4
	policy nbd 'fairshare jobid_fair'
	set_to nbd nrs_fairshare_weights jobid:b:4
	parts 'exports 1 to 4' 8 4
	grep -q '"jobid:a"' "$(at nbd nrs_fairshare_stats)" ||
		fail "$(cat "$(at nbd nrs_fairshare_stats)")"
}

# Verifies that each operation passes nrs, and has the same effect as without nrs.
operations() {
	module
	serve 10
	connect 0 a
	[ "$(</sys/block/nbd0/queue/fua)" = 1 ] || fail "no FUA"
	local before
	before=$(ended nbd)
	verified nbd0 --sync=1 --iodepth=8 --size=256k
	[ "$(ended nbd)" -ge $((before + 128)) ] ||
		fail "64 writes and 64 reads: $before, then $(ended nbd)"
	dd if=/dev/urandom of=/tmp/random bs=4k count=16 2>/dev/null
	local call
	for call in 'blkdiscard -z' blkdiscard; do
		cp /tmp/random /mnt/exports/a
		truncate -s $((64 << 20)) /mnt/exports/a
		before=$(ended nbd)
		$call /dev/nbd0
		[ "$(ended nbd)" -gt "$before" ] || fail "$call: $before, then $(ended nbd)"
		cmp -n 65536 /mnt/exports/a /dev/zero
	done
	balanced nbdkit
}

# Verifies more than a thousand requests in flight.
many() {
	module
	serve 1000 -t 128
	local n pids=()
	echo 1 >"$(at nbd slots)"
	for n in {0..7}; do
		connect "$n" a
		load "nbd$n" --iodepth=128 --number_ios=128 >/dev/null &
		pids+=($!)
	done
	wait_for 20 '[ "$(counter nbdkit held)" -ge 1000 ]' || fail "queued: $(counter nbdkit held)"
	echo 512 >"$(at nbd slots)"
	for n in "${pids[@]}"; do wait "$n" || fail "fio: status $?"; done
	balanced nbdkit
}

# ask COUNT: Connects a client with the address 10.0.0.3 that requests COUNT times 1 MiB of the
# export a, and reads no reply; descriptor $raw.
ask() {
	local n
	exec {raw}<>/dev/tcp/10.0.0.3/10809
	head -c 18 <&"$raw" >/dev/null
	printf '\0\0\0\3IHAVEOPT\0\0\0\1\0\0\0\1a' >&"$raw"
	head -c 10 <&"$raw" >/dev/null
	for ((n = 0; n < $1; n++)); do
		printf '\x25\x60\x95\x13\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\0\0\x10\0\0' >&"$raw"
	done
}

# over: Verifies that no request is queued and all have completed, some with errors: delays end when
# the client disconnects.
over() {
	wait_for 10 '[ $(($(counter nbdkit passed) + $(counter nbdkit queued))) = "$(ended nbd)" ]' ||
		fail "$(cat "$(at nbd clients)")"
}

# Verifies that clients that disconnect with requests queued, or do not read their replies, do not
# affect others.
clients() {
	module
	serve 200
	connect 0 a
	echo 1 >"$(at nbd slots)"
	ask 16
	wait_for 10 '[ "$(counter nbdkit held)" -ge 10 ]' || fail "queued: $(counter nbdkit held)"
	exec {raw}>&-
	over
	# All threads of the connection block with a reply to send.
	ask 64
	wait_for 10 '[ "$(ended nbd)" -ge 32 ]' || fail "ended: $(ended nbd)"
	timeout 20 dd if=/dev/nbd0 of=/dev/null bs=4k count=10 iflag=direct 2>/dev/null ||
		fail "a client that does not read stops others"
	over
	exec {raw}>&-
}

# Verifies the end of the server with and without requests queued; meanwhile the server holds the
# module.
ends() {
	module
	serve 10 -t 64
	connect 0 a
	echo 1 >"$(at nbd slots)"
	refused EBUSY rmmod nrs
	begin nbd0 --iodepth=64
	wait_for 10 '[ "$(counter nbdkit held)" -ge 50 ]' || fail "queued: $(counter nbdkit held)"
	kill -KILL "$(pidof nbdkit)"
	wait_for 10 '[ ! -e /sys/kernel/debug/nrs/nbd ]' || fail "$(cat "$(at nbd clients)")"
	wait_for 10 '! pidof fio nbd-client' || fail "$(ps)"
	umount /mnt/exports
	serve 10
	connect 1 a
	dd if=/dev/nbd1 of=/dev/null bs=4k count=4 iflag=direct 2>/dev/null
	nbd-client -d /dev/nbd1
	kill -TERM "$(pidof nbdkit)"
	wait_for 10 '! pidof nbdkit' || fail "nbdkit does not end"
	wait_for 10 '[ ! -e /sys/kernel/debug/nrs/nbd ]'
	rmmod nrs
}

# Verifies the filter without the module.
without() {
	[ ! -d /sys/module/nrs ] || rmmod nrs
	refused ENOENT serve 10
	umount /mnt/exports
	serve 10 nrs-fallback=true
	connect 0 a
	dd if=/dev/nbd0 of=/dev/null bs=4k count=4 iflag=direct 2>/dev/null
}

try 60 "shares of NBD clients and exports" shares
try 60 "data, FUA, zeroes and discards" operations
try 60 "a thousand requests in flight" many
try 60 "clients that disconnect, or read no replies" clients
try 60 "the server ends" ends
try 30 "without /dev/nrs" without
summary
