#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Errors of the device below reach the caller and cost no slot.
. /tests/nrs.sh

# failing TARGET: Verifies several concurrent failing requests with one slot; then the same client
# on a good disk.
failing() {
	module
	lower nb0 memory_backed=1
	local size
	size=$(sectors /dev/nb0)
	case $1 in
	error) dm_create bad "0 $size error" ;;
	flakey)
		modprobe dm-flakey
		dm_create bad "0 $size flakey /dev/nb0 0 0 600"
		;;
	esac
	client a /dev/mapper/bad svc
	policy svc fairshare
	echo 1 >"$(at svc slots)"
	refused EIO dd if=/dev/mapper/a of=/dev/null bs=4k count=1 iflag=direct
	local way seen
	for way in randread randwrite; do
		seen=$(counter a failed)
		load a --rw=$way --iodepth=16 --io_size=1m --continue_on_error=all >/tmp/fio.txt 2>&1 ||
			true
		[ $(($(counter a failed) - seen)) -ge 256 ] || fail "$way: $(dm status a)"
	done
	[ "$(counter a failed)" = "$(counter a ended)" ] && [ "$(counter a held)" = 0 ] ||
		fail "$(dm status a)"
	[ $(($(counter a passed) + $(counter a queued))) = "$(counter a ended)" ] ||
		fail "$(dm status a)"
	# Replaces the disk by a good one.
	dm load a --table "0 $size nrs /dev/nb0 0 svc"
	dm resume a
	[ "$(cat "$(at svc slots)")" = 1 ]
	verified a --size="$(slow 4m 256k)"
	[ "$(counter a failed)" = 0 ]
}

# Verifies that failures of one device do not affect the other device of its service.
beside() {
	module
	lower nb0 memory_backed=1
	dm_create bad "0 $(sectors /dev/nb0) error"
	client a /dev/mapper/bad svc
	client b /dev/nb0 svc
	echo 2 >"$(at svc slots)"
	load a --time_based --runtime=60 --continue_on_error=all >/dev/null 2>&1 &
	wait_for 10 '[ $(counter a failed) -ge 100 ]' || fail "$(dm status a)"
	verified b --size="$(slow 4m 256k)"
	[ "$(counter b failed)" = 0 ]
}

long try 30 "a device that fails (dm-error)" failing error
try 30 "a device that is unavailable (dm-flakey)" failing flakey
long try 30 "one of two devices fails" beside
summary
