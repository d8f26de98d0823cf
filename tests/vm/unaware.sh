#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Requests without a known owner (kernel threads that write back data; clients without a name):
# served and undamaged under every policy.
. /tests/nrs.sh

# setup LEVEL: Creates a client without address or job.
setup() {
	module
	lower nb0 memory_backed=1 irqmode=2 completion_nsec=1000000
	client a /dev/nb0 svc
	echo 2 >"$(at svc slots)"
	[ "$1" = none ] || echo "$1" >"$(at svc nrs_pop)"
	# The last close would write back all data.
	exec 7</dev/mapper/a
	set_to svc nrs_delay_min 0
	set_to svc nrs_delay_max 1
	set_to svc nrs_delay_pct 2
	set_to svc nrs_qbm_config \
		'by uid;group all capacity=20MB/s;client 1001 class=first_come min=2MB/s'
}

# written_back: Writes through the page cache, waits until a kernel thread has written the data to
# the disk, and reads it from there.
written_back() {
	local how=(--filename=/dev/mapper/a --bs=4k --ioengine=psync --size=512k --offset=16m
		--verify=crc32c --verify_state_save=0
		--minimal --name=late)
	fio --rw=randwrite --direct=0 --do_verify=0 "${how[@]}" >/tmp/late.txt ||
		fail "$(tail -n 3 /tmp/late.txt | cut -c1-300)"
	wait_for 20 'awk '\''$1 == "Dirty:" || $1 == "Writeback:" { n += $2 }
		END { exit n > 0 }'\'' /proc/meminfo' ||
		fail "$(grep -E '^(Dirty|Writeback)' /proc/meminfo) $(dm status a)"
	fio --rw=read --bs=4k --direct=1 --verify_fatal=1 "${how[@]}" >/tmp/late.txt ||
		fail "$(tail -n 3 /tmp/late.txt | cut -c1-300)"
}

# served LEVEL POLICY...: Verifies the data under each policy.
served() {
	local level=$1 policy anonymous
	shift
	setup "$level"
	echo 10 >/proc/sys/vm/dirty_writeback_centisecs
	echo 10 >/proc/sys/vm/dirty_expire_centisecs
	# A known user runs concurrently.
	load a as=1001 --iodepth=4 --rate_iops=300 --time_based --runtime=600 >/dev/null 2>&1 &
	local pid=$!
	for policy; do
		say "$policy, order $level"
		policy svc "$policy"
		[ "$policy" != 'tbf uid' ] || set_to svc nrs_tbf_rule 'start few uid={0 1001} rate=3000'
		anonymous=$(counter a anonymous)
		written_back
		[ "$(counter a anonymous)" -gt "$anonymous" ] ||
			fail "$policy: no request of a kernel thread: $(dm status a)"
	done
	# It is a child of the background shell, which would leave it running.
	# shellcheck disable=SC2046
	kill -TERM $(pidof fio)
	wait "$pid" || true
	wait_for 10 '[ $(counter a held) = 0 ]' || fail "$policy: $(dm status a)"
	exec 7<&-
	[ "$(counter a failed)" = 0 ]
}

policies=(fifo crrn orr trr delay 'tbf uid' 'fairshare jobid_fair' qbm)
[ -n "${NRS_LONG:-}" ] || policies=('tbf uid' 'fairshare jobid_fair' qbm)
try 120 "every policy" served none "${policies[@]}"
long try 120 "every policy, with nrs_pop=overlap" served overlap "${policies[@]}"
summary
