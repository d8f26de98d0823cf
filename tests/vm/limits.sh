#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Features of disks that devices of type nrs pass on: their attributes, compared with those of
# devices of type linear, and I/O that uses them.
. /tests/nrs.sh
only=$*
shopt -s nullglob

# Attributes that differ on purpose, an extended regular expression. Documentation/dm-nrs.md has a
# line for each, and one for zoned disks, which are refused.
differs='queue/dax'

# attributes DISK: Prints the attributes of the disk, one per line; blanks in values become "_".
# Starts no process.
attributes() {
	local dir=/sys/block/$1 file value
	for file in "$dir"/{size,ro,removable,alignment_offset,discard_alignment,capability} \
		"$dir"/{queue,integrity}/{*,*/*,*/*/*}; do
		[ ! -f "$file" ] || ! read -r value 2>/dev/null <"$file" ||
			echo "${file#"$dir"/}=${value// /_}"
	done
}

# of_device TABLE: Prints the attributes of a device with this table.
of_device() {
	local flags=()
	[ "$(blockdev --getro "$lower")" = 0 ] || flags=(--readonly)
	dm create n "${flags[@]}" --table "$1"
	attributes "$(dm info -c --noheadings -o blkdevname n)"
	dm_remove n
}

# alike OFFSET [ATTRIBUTE=VALUE]...: Verifies that devices of type nrs and linear that start at
# OFFSET of $lower have the same attributes, which include the given ones.
alike() {
	local length=$(($(sectors "$lower") - $1)) wanted got word
	wanted=$(of_device "0 $length linear $lower $1")
	got=$(of_device "0 $length nrs $lower $1 svc")
	say "$lower from $1: $(wc -l <<<"$wanted") attributes"
	shift
	for word; do
		grep -qxF "$word" <<<"$wanted" || fail "$lower: no $word in ${wanted//$'\n'/ }"
	done
	got=$(diff -U0 <(echo "$wanted") <(echo "$got") | grep -E '^[+-][^+-]' |
		grep -vE "^.($differs)=" || true)
	[ -z "$got" ] || fail "$lower: linear has (-), nrs has (+): ${got//$'\n'/ }"
}

null_disks() {
	local options wanted lower=/dev/nb0
	module
	while IFS='|' read -r -u 3 options wanted; do
		# shellcheck disable=SC2086 # words
		lower nb0 $options
		# shellcheck disable=SC2086 # words
		alike 0 $wanted
		null_blk_remove nb0
	done 3<<-END
		|integrity/format=none queue/write_cache=write_through queue/discard_max_bytes=0
		memory_backed=1 discard=1 rotational=1|queue/discard_granularity=512 queue/rotational=1
		memory_backed=1 cache_size=16 fua=1|queue/write_cache=write_back queue/fua=1
		blocksize=4096 max_sectors=64 virt_boundary=1|queue/max_sectors_kb=32
		queue_mode=0|queue/max_segments=128
	END
	lower nb0 zoned=1 zone_size=4
	refused EINVAL dm create a --table "0 $(sectors /dev/nb0) nrs /dev/nb0 0 svc"
}

# scsi OPTION...: Creates the disk of scsi_debug with the options, and sets $lower to its path.
scsi() {
	local dir=/sys/bus/pseudo/drivers/scsi_debug/adapter0 found
	modprobe sd_mod
	modprobe scsi_debug dev_size_mb=64 "$@"
	wait_for 20 "compgen -G '$dir/host*/target*/*/block/sd*' >/dev/null"
	found=$(cd $dir && echo host*/target*/*/block/sd*)
	lower=/dev/${found##*/}
	# The disk is added with its limits, and the partitions after it.
	wait_for 20 "[ -b $lower ]"
	case "$*" in *num_parts=*) wait_for 20 "[ -b ${lower}2 ]" ;; esac
}

scsi_disks() {
	local options wanted lower
	module
	while IFS='|' read -r -u 3 options wanted; do
		# shellcheck disable=SC2086 # words
		scsi $options
		# shellcheck disable=SC2086 # words
		alike 0 $wanted
		alike 6
		case $options in *num_parts=*) lower+=1 && alike 0 ;; esac
		rmmod scsi_debug
	done 3<<-END
		dif=1 dix=1 physblk_exp=3 lowest_aligned=7 num_parts=2|integrity/format=T10-DIF-TYPE1-CRC
		dif=3 dix=1 guard=1 wp=1|integrity/format=T10-DIF-TYPE3-IP integrity/tag_size=6 ro=1
		atomic_wr=1 lbpu=1 unmap_granularity=4|queue/atomic_write_unit_max_bytes=65536
	END
}

# Compares disks of other drivers, and all other disks of the machine.
other_disks() {
	local lower
	module
	modprobe brd rd_nr=1 rd_size=16384
	modprobe loop
	modprobe nbd nbds_max=1
	truncate -s 16M /tmp/file
	losetup --direct-io=on --sector-size 4096 /dev/loop0 /tmp/file
	nrs-test disk /dev/nbd0 --size 16 &
	wait_for 20 '[ "$(sectors /dev/nbd0)" -gt 0 ]'
	for lower in /dev/ram0 /dev/loop0 /dev/nbd0 /dev/vd* /dev/nvme*n* /dev/pmem*; do
		alike 0
	done
	losetup -d /dev/loop0
	kill %nrs-test
	rmmod brd loop
}

# throttled: Makes $lower, from its sector 8, the client a, whose requests are queued.
throttled() {
	dm_create a "0 $(($(sectors "$lower") - 8)) nrs $lower 8 svc"
	chmod 666 /dev/mapper/a
	policy svc 'tbf uid'
	echo 'change default rate=400' >"$(at svc nrs_tbf_rule)"
}

# Verifies that atomic writes reach the disk in one piece, even across multiples of 1 MiB.
atomic() {
	local lower before after stat
	module
	scsi atomic_wr=1 ndelay=100000
	throttled
	echo 2 >"/sys/block/${lower##*/}/queue/nomerges"
	dm_create shifted "0 $(($(sectors /dev/mapper/a) - 2)) linear /dev/mapper/a 2"
	read -ra before <"/sys/block/${lower##*/}/stat"
	verified shifted --rw=write --bs=64k --size=4m --atomic=1
	read -ra after <"/sys/block/${lower##*/}/stat"
	[ $((after[4] - before[4])) = 64 ] || fail "64 writes became $((after[4] - before[4]))"
	[ "$(counter a queued)" -ge 50 ] || fail "$(status a)"
	balanced a
}

# Verifies that protection information reaches the disk and returns, also of requests that are split
# at multiples of 1 MiB.
integrity() {
	local lower
	module
	scsi dif=1 dix=1 ndelay=100000
	throttled
	nrs-test integrity /dev/mapper/a
	[ "$(counter a queued)" -ge 50 ] || fail "$(status a)"
}

# Verifies that keys of inline encryption reach the disk, which encrypts, and that writes are split
# into whole data units.
encrypted() {
	local lower=/dev/nb0
	module
	lower nb0 irqmode=2 completion_nsec=100000
	insmod /nrs_crypt_test.ko disk=$lower
	alike 0 queue/crypto/num_keyslots=0 queue/crypto/modes/AES-256-XTS=0x1000
	throttled
	echo 30 >"/sys/block/$(dm info -c --noheadings -o blkdevname a)/queue/max_sectors_kb"
	printf /dev/mapper/a >/sys/module/nrs_crypt_test/parameters/submit
	[ "$(counter a queued)" -ge 10 ] || fail "$(status a)"
	balanced a
	dm_remove a
	rmmod nrs_crypt_test
}

# Verifies that commands of SG_IO, which are not scheduled, need privileges.
commands() {
	local lower reads=(--ioengine=sg --rw=read --size=64k)
	module
	scsi
	client a "$lower" svc
	load a "${reads[@]}"
	if load a as=1000 "${reads[@]}" >/tmp/said 2>&1; then fail "a user may send commands"; fi
	grep -q 'unable to successfully execute read capacity' /tmp/said || fail "$(cat /tmp/said)"
	[ "$(counter a ended)" = 0 ] || fail "$(status a)"
}

try 30 "attributes of null_blk disks" null_disks
if modprobe -nq scsi_debug; then
	try 60 "attributes of SCSI disks" scsi_disks
	try 30 "atomic writes" atomic
	try 30 "protection information" integrity
	try 20 "SCSI commands" commands
else
	echo "# this kernel has no scsi_debug"
fi
try 30 "attributes of other disks" other_disks
try 20 "inline encryption" encrypted
summary
