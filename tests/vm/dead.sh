#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Requests for a device that fails them at once take no tokens; requests that a working device fails
# do.
. /tests/nrs.sh

# Time for which each request of the load that dying expects to fail may be throttled, ms. At 2/s
# the whole backlog takes 12 s.
bound=$(slow 6000 10000)

# rule: Limits the user 1001 to 5 requests/s.
rule() {
	policy svc 'tbf uid'
	echo 'start slow uid={1001} rate=5' >"$(at svc nrs_tbf_rule)"
}

# limited DEVICE: Lets the user 1001 have 60 requests queued for the device, at 5/s; the process is
# $reader.
limited() {
	rule
	load "$1" as=1001 --iodepth=60 --number_ios=60 --continue_on_error=all >/tmp/reader.txt 2>&1 &
	reader=$!
	wait_for 20 "[ \$(counter $1 held) -ge 50 ]" || fail "no backlog: $(status)"
}

# ends DEVICE: Verifies that the requests of $reader end without being throttled, and that the user
# has no debt: the next request is dispatched at once.
ends() {
	local start=${EPOCHREALTIME/./} took
	wait_for 60 "[ \$(counter $1 held) = 0 ]" || fail "$(status)"
	wait "$reader" || true
	took=$(((${EPOCHREALTIME/./} - start) / 1000))
	say "60 requests at 5/s ended after $took ms"
	[ "$took" -lt "$bound" ] || fail "the backlog ended after $took ms"
}

# scsi_disk: Creates a SCSI disk, and sets $disk to its directory in sysfs.
scsi_disk() {
	local dir=/sys/bus/pseudo/drivers/scsi_debug
	modprobe sd_mod
	modprobe scsi_debug dev_size_mb=64 ndelay=1000000
	wait_for 10 "ls $dir/adapter0/host*/target*/*/block/* >/dev/null 2>&1"
	disk=$(echo $dir/adapter0/host*/target*/*/block/*)
	wait_for 10 "[ -b /dev/${disk##*/} ]"
}

# Verifies a SCSI disk that is set offline.
offline() {
	local disk reader
	module
	scsi_disk
	client a "/dev/${disk##*/}" svc
	limited a
	echo offline >"$disk/device/state"
	ends a
}

# Verifies a disk that is removed below a dm device.
removed() {
	local reader
	module
	slow_lower nb0 1000000
	client a /dev/nb0 svc
	limited a
	null_blk_remove nb0
	ends a
}

# Verifies a device below that fails everything without saying that it is dead.
failing() {
	local size reader
	module
	slow_lower nb0 1000000
	size=$(sectors /dev/nb0)
	dm_create lower "0 $size linear /dev/nb0 0"
	client a /dev/mapper/lower svc
	limited a
	dm suspend --nolockfs lower
	dm load lower --table "0 $size error"
	dm resume lower
	ends a
}

# alone MAX [OPTION...]: Verifies that the user 1001 gets at most MAX requests in 4 s, all of which
# fail.
alone() {
	local before got
	before=$(counter a ended)
	load a as=1001 --time_based --runtime=4 --continue_on_error=all "${@:2}" \
		>/tmp/reader.txt || true
	got=$(($(counter a ended) - before))
	say "$got requests in 4 s at 5/s"
	[ "$got" -ge 10 ] && [ "$got" -le "$1" ] || fail "$got requests in 4 s, limited to 5/s"
}

# Verifies that a rule limits reads of bad sectors, for which the disk works.
bad_sectors() {
	module
	slow_lower nb0 20000000
	echo +0-262143 >/sys/kernel/config/nullb/nb0/badblocks
	client a /dev/nb0 svc
	rule
	refused EIO dd if=/dev/mapper/a of=/dev/null bs=4k count=1 iflag=direct
	alone 40
}

# Verifies that a rule limits reads of good sectors behind many bad ones, and reads that fail at
# once while another user reads well.
partly_bad() {
	local half start took
	module
	slow_lower nb0 1000000
	half=$(($(sectors /dev/nb0) / 2))
	dm create lower <<-END
		0 $half error
		$half $half linear /dev/nb0 $half
	END
	client a /dev/mapper/lower svc
	rule
	start=${EPOCHREALTIME/./}
	load a as=1001 --rw=read --offset=$((half / 2 - 120))k --size=240k --iodepth=60 \
		--continue_on_error=all >/tmp/reader.txt || true
	took=$(((${EPOCHREALTIME/./} - start) / 1000))
	say "30 bad and 30 good sectors at 5/s: $took ms"
	[ "$took" -ge 5000 ] || fail "30 good sectors after $took ms"
	client b /dev/mapper/lower svc
	begin b as=1002 --offset=$((half / 2))k --iodepth=1
	wait_for 10 '[ "$(counter b ended)" -ge 10 ]' || fail "$(status)"
	alone 40 --size=$((half / 2))k
}

if modprobe -nq scsi_debug; then
	try 60 "a SCSI disk goes offline" offline
fi
dm_only try 60 "a disk is removed below a dm device" removed
dm_only long try 60 "a device below fails everything" failing
long try 60 "bad sectors of a disk" bad_sectors
dm_only long try 60 "bad sectors, and good ones" partly_bad
summary
