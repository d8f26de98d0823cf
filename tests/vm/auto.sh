#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# slots=auto: as many requests go to a disk as keep it busy, and no more, so that the policy decides the order of the rest.
. /tests/nrs.sh

# setup PLACES NANOSECONDS: a disk with a long queue that serves so many requests at a time, and needs that long for each; two
# devices on it.
setup() {
	module
	slow_lower nb0 "$2" size=1024
	client disk /dev/nb0 disk
	echo "$1" >"$(at disk slots)"
	client a /dev/mapper/disk svc
	client b /dev/mapper/disk svc
	policy svc 'fairshare uid_fair'
	echo auto >"$(at svc slots)"
	begin a as=1001 --numjobs=16 --iodepth=16
	begin b as=1002 --iodepth=64
	saturated a b
}

# target NAME: what the target of the service has of it.
target() {
	awk -v name="$1:" '/^- target/ { on = 1 } on { for (i = 1; i < NF; i++) if ($i == name) print $(i + 1) + 0 }' "$(at svc clients)" | head -n 1
}

# rate SECONDS: requests per second of both, in $rate.
rate() {
	gather "$1" ended
	rate=$(((got[0] + got[1]) * 1000000 / time))
}

# knee PLACES NANOSECONDS: after two seconds as many slots as there are places, half as many more at most; 96 % of the requests
# while other numbers are still tried now and then, and fair shares.
knee() {
	local rate slots got
	setup "$1" "$2"
	pause 2
	slots=$(target limit)
	rate 4
	local shares=("${got[@]}") auto=$rate knee
	knee=$(target knee)
	echo 1024 >"$(at svc slots)"
	rate 2
	say "$1 places: $slots slots after 2 s, knee $knee; $auto requests/s, $rate with 1024 slots"
	more 0.96 "$auto" "$rate" || fail "$auto of $rate requests/s"
	[ $((2 * knee)) -le $((3 * $1 + 1)) ] || fail "knee $knee of $1 places"
	within 2 "${shares[@]}"
}

for places in 1 4 16; do try 60 "$places places" knee $places 8000000; done
try 60 "32 places" knee 32 16000000
remarks 'places: '
summary
