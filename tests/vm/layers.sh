#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# usage: layers.sh [FUNCTION...]
#
# Shares of two users beneath each layer between them and the disk: one process with one request at
# a time beside 32 such processes, in slices of systemd, with equal weights. A third is all that the
# one can use, on the disk alone too; 3 % is no fairness at all. The parts go to /out/layers.md.
. /tests/nrs.sh

only=$*
front=elevator

# part USER PROCESSES DEVICE OPTION...: Starts a load of the user, and writes the number of its
# requests to /tmp/USER.
part() {
	in_slice "$1" fio --name=a --filename="$3" --bs=4k --direct=1 --numjobs="$2" --thread \
		--ioengine=psync --norandommap --ramp_time=2 --runtime=6 --time_based --minimal \
		--group_reporting "${@:4}" >"/tmp/$1" &
}

# fields FILE: Prints the reads and writes per second of a report of fio.
fields() {
	awk -F';' '$1 == 3 { print int($8 + $49) }' "$1"
}

# shares NAME DEVICE OPTION...: Sets $share to the part of the one process, in permille, under
# uid_fair, and adds a row for the manual.
shares() {
	local name=$1 device=$2 one two
	chmod 666 "$(readlink -f "$device")"
	part 2001 1 "$device" "${@:3}"
	one=$!
	part 2002 32 "$device" "${@:3}"
	two=$!
	wait $one
	wait $two
	one=$(fields /tmp/2001) two=$(fields /tmp/2002)
	share=$((one * 1000 / (one + two)))
	say "$name: $one and $two requests per second"
	echo "| $name | $((share / 10)).$((share % 10)) % |" >>/out/layers.md
}

# fair NAME DEVICE OPTION...: Verifies that the one process has at least 31 %.
fair() {
	shares "$@"
	[ "$share" -ge 310 ] || fail "$share permille: $(cat "$(at svc nrs_fairshare_stats)")"
}

# unfair NAME DEVICE OPTION...: Verifies that the owners are lost: shares as under fifo.
unfair() {
	shares "$@"
	[ "$share" -le 120 ] || fail "$share permille"
}

# setup COUNT: Creates slices of two users, and disks nb0, … with one slot each, in one service.
setup() {
	local i
	module
	slices 2001 2002
	for ((i = 0; i < $1; i++)); do
		slow_lower nb$i 8000000 memory_backed=1 size=64
		scheduled nb$i svc
		echo 1024 >/sys/block/nb$i/queue/nr_requests
	done
	echo 1 >"$(at svc slots)"
	policy svc 'fairshare uid_fair'
}

# done_with NAME: Removes a device-mapper device.
done_with() {
	wait_for 10 "dm remove $1"
}

crypt() {
	setup 1
	modprobe -a dm-crypt crypto_null
	fair 'the disk alone' /dev/nb0 --rw=randwrite
	dm_create c "0 $(sectors /dev/nb0) crypt cipher_null-ecb - 0 /dev/nb0 0"
	fair 'dm-crypt, writes' /dev/mapper/c --rw=randwrite
	fair 'dm-crypt, reads' /dev/mapper/c --rw=randread
	done_with c
}

raid() {
	setup 3
	modprobe -a dm-raid raid1 raid456
	dm_create r "0 65536 raid raid1 2 0 nosync 2 - /dev/nb0 - /dev/nb1"
	fair 'RAID 1, writes' /dev/mapper/r --rw=randwrite
	done_with r
	dm_create r "0 65536 raid raid5_ls 2 64 nosync 3 - /dev/nb0 - /dev/nb1 - /dev/nb2"
	unfair 'RAID 5, writes' /dev/mapper/r --rw=randwrite
	# nrs above the array, and no scheduler below.
	local i
	for i in 0 1 2; do echo none >/sys/block/nb$i/queue/scheduler; done
	dm_create above "0 65536 nrs /dev/mapper/r 0 svc"
	echo 1 >"$(at svc slots)"
	policy svc 'fairshare uid_fair'
	fair 'a device of type nrs above RAID 5, writes' /dev/mapper/above --rw=randwrite
	done_with above
	done_with r
}

loop() {
	setup 1
	looped /dev/nb0
	fair 'loop device with --direct-io=on, writes' /dev/loop0 --rw=randwrite
	long fair 'loop device with --direct-io=on, reads' /dev/loop0 --rw=randread
	losetup -d /dev/loop0
}

integrity() {
	setup 1
	modprobe dm-integrity
	dd if=/dev/zero of=/dev/nb0 bs=4k count=1 2>/dev/null
	dm_create i "0 1 integrity /dev/nb0 0 4 D 1 internal_hash:sha256"
	dm_remove i
	dm_create i "0 32768 integrity /dev/nb0 0 4 D 1 internal_hash:sha256"
	# Checksums of all blocks.
	dd if=/dev/zero of=/dev/mapper/i bs=1M oflag=direct 2>/dev/null || true
	unfair 'dm-integrity, reads' /dev/mapper/i --rw=randread
	done_with i
}

echo '| layer | part of the one |' >/out/layers.md
echo '|---|---:|' >>/out/layers.md
long try 60 "dm-crypt" crypt
long try 60 "RAID" raid
try 60 "loop devices" loop
long try 60 "dm-integrity" integrity
remarks ' requests per second$'
summary
