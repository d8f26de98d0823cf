#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# High priority (ioprio class real-time): overtakes queued requests, has a reserved slot, and does
# not starve regular requests.
. /tests/nrs.sh

# setup POLICY SLOTS: Creates two sharers of a disk.
setup() {
	module
	slow_lower nb0 4000000
	sharer a /dev/nb0 svc
	sharer b /dev/nb0 svc
	policy svc "$1"
	echo "$2" >"$(at svc slots)"
}

realtime() {
	load b --prioclass=1 --prio=0 --time_based "$@"
}

# Verifies the reserved slot: with two slots, regular requests use one, and the other serves a
# single high-priority request at once, as on an idle device.
reserved_slot() {
	setup fifo 2
	realtime --iodepth=1 --runtime=2 >/tmp/idle.txt
	load a --numjobs=2 --iodepth=16 --time_based --runtime=60 >/dev/null 2>&1 &
	saturated a
	realtime --iodepth=1 --runtime=2 >/tmp/busy.txt
	say "mean latency: idle $(terse /tmp/idle.txt 16) us, busy $(terse /tmp/busy.txt 16) us"
	more 1 "$(awk -v t="$(terse /tmp/idle.txt 16)" 'BEGIN { print 1.5 * t }')" \
		"$(terse /tmp/busy.txt 16)"
}

# Verifies that under a flood of high priority, regular requests get one of every eleven requests
# (high_priority_ratio 10).
not_starved() {
	setup fairshare 4
	[ "$(cat "$(at svc high_priority_ratio)")" = 10 ]
	load a --numjobs=2 --time_based --runtime=60 >/dev/null 2>&1 &
	saturated a
	realtime --numjobs=2 --iodepth=32 --runtime=60 >/dev/null 2>&1 &
	saturated b
	window 1 ended a b >/dev/null
	local regular high got
	got=$(window 4 ended a b)
	read -r regular high <<<"$got"
	say "ended in 4 s: regular $regular, high $high"
	more 5 "$high" "$regular" && more 1 "$((regular * 15))" "$high" && [ "$regular" -gt 20 ]
}

# high_entities: Prints the number of fairshare entities of the high-priority head.
high_entities() {
	grep -c 'queue: .*high_priority' "$(at svc nrs_fairshare_stats)" || true
}

# Verifies that metadata of a file system has high priority only if configured.
metadata() {
	module
	lower nb0 memory_backed=1
	client a /dev/nb0 svc
	policy svc 'fairshare uid_fair'
	mkfs.ext4 -q -b 4096 -E lazy_itable_init=0,lazy_journal_init=0 /dev/mapper/a
	mkdir -p /mnt/a
	local source seen
	for source in none realtime meta prio; do
		set_to svc high_priority_sources $source
		# A new instance, without entities.
		policy svc fifo
		policy svc 'fairshare uid_fair'
		mount -t ext4 /dev/mapper/a /mnt/a
		ls -R /mnt/a >/dev/null
		mkdir /mnt/a/$source
		sync
		umount /mnt/a
		seen=$(high_entities)
		say "$source: $seen entities of high priority"
		case $source in
		none | realtime) [ "$seen" = 0 ] ;;
		*) [ "$seen" -ge 1 ] ;;
		esac || fail "$source: $(cat "$(at svc nrs_fairshare_stats)")"
	done
}

try 40 "regular requests are not starved" not_starved
try 40 "a slot is reserved for high priority" reserved_slot
long try 40 "high_priority_sources: metadata" metadata
remarks '^(mean|ended)'
summary
