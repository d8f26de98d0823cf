#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# slots=auto: dispatches as many requests to a disk as keep the disk busy, and no more, so that the
# policy decides the order of the rest.
. /tests/nrs.sh

# disk NAME PLACES LOWER: Creates a disk that dispatches at most PLACES requests at a time to LOWER,
# and queues the rest.
disk() {
	client "$1" "$3" "$1"
	echo "$2" >"$(at "$1" slots)"
}

# setup PLACES LOWER: Creates such a disk with two devices on it, and a user on each device.
setup() {
	disk disk "$1" "$2"
	client a /dev/mapper/disk svc
	client b /dev/mapper/disk svc
	policy svc 'fairshare uid_fair'
	echo auto >"$(at svc slots)"
	begin a as=1001 --numjobs=16 --iodepth=16
	begin b as=1002 --iodepth=64
	saturated a b
}

# target NAME [N]: Prints the value NAME of the first or Nth target of the service.
target() {
	awk -v name="$1:" -v n="${2:-1}" '
		/^- target/ { on++ }
		on == n { for (i = 1; i < NF; i++) if ($i == name) print $(i + 1) + 0 }
	' "$(at svc clients)" | head -n 1
}

# rate SECONDS: Sets $rate to the requests per second of all devices.
rate() {
	local count
	gather "$1" ended
	rate=0
	for count in "${got[@]}"; do rate=$((rate + count * 1000000 / time)); done
}

# settled PLACES FACTOR: Verifies that the knee exceeds PLACES by at most a half, and that the rate
# is at least FACTOR of the rate without a limit. Sets $shares.
settled() {
	local rate slots got auto knee
	slots=$(target limit) knee=$(target knee)
	rate 4
	shares=("${got[@]}") auto=$rate
	echo 1024 >"$(at svc slots)"
	rate 2
	say "$1 places: $slots slots, knee $knee; $auto requests/s, $rate with 1024 slots"
	more "$2" "$auto" "$rate" || fail "$auto of $rate requests/s"
	[ $((2 * knee)) -le $((3 * $1 + 1)) ] || fail "knee $knee of $1 places"
}

# knee PLACES NANOSECONDS [SECONDS]: Verifies that the knee is found in two (or SECONDS) seconds,
# and that shares are then fair.
knee() {
	local shares
	module
	slow_lower nb0 "$2" size=1024
	setup "$1" /dev/nb0
	pause "${3:-2}"
	settled "$1" 0.96
	within 2 "${shares[@]}" || fail "shares: ${shares[*]}"
}

# speed: Verifies that the knee is found again after the disk becomes ten times as fast, in two
# seconds, and ten times as slow, in four. The slow disk completes fewer than 200 requests per
# second.
speed() {
	local shares table disk
	module
	slow_lower nb0 25000000 size=1024
	slow_lower nb1 2500000 size=1024
	table="0 $(sectors /dev/nb0) linear /dev/nb"
	dm_create lin "${table}0 0"
	setup 4 /dev/mapper/lin
	pause 4
	for disk in 1 0; do
		dm suspend lin
		dm reload lin --table "$table$disk 0"
		dm resume lin
		pause $([ $disk = 1 ] && echo 2 || echo 4)
		# A trial that has begun before the change may still have to end.
		wait_for 6 '[ $(($(target knee) * 2)) -le 13 ]' || fail "knee $(target knee) of 4 places"
		# A trial with fewer slots takes long while few requests complete.
		settled 4 "$([ $disk = 1 ] && echo 0.95 || echo 0.92)"
		echo auto >"$(at svc slots)"
		pause 3
	done
}

# one DEPTH: Verifies that a single user with DEPTH requests has 98 % of its rate without nrs.
one() {
	local none rate
	module
	slow_lower nb0 8000000 size=1024
	disk disk 16 /dev/nb0
	begin disk as=1001 --iodepth="$1"
	pause 1
	requests 4
	none=$rate
	kill -KILL $(pidof fio)
	wait_for 10 '! pidof fio >/dev/null'
	client a /dev/mapper/disk svc
	policy svc 'fairshare uid_fair'
	echo auto >"$(at svc slots)"
	begin a as=1001 --iodepth="$1"
	pause 3
	requests 8
	say "a user with $1 requests: $rate requests/s, $none without nrs"
	more 0.98 "$rate" "$none" || fail "$rate of $none requests/s"
}

# requests SECONDS: Sets $rate to the requests per second of the service disk.
requests() {
	local before now time=${EPOCHREALTIME/./}
	before=$(ended disk)
	sleep "$1"
	now=$(ended disk)
	rate=$(((now - before) * 1000000 / (${EPOCHREALTIME/./} - time)))
}

# unlike: Verifies that two disks of different speed in one service have a knee each.
unlike() {
	local knees fast slow disk
	module
	slow_lower nb0 8000000 size=1024
	slow_lower nb1 10000000 size=1024
	disk fast 8 /dev/nb0
	disk slow 2 /dev/nb1
	for disk in fast slow; do
		client "a$disk" /dev/mapper/$disk svc
		client "b$disk" /dev/mapper/$disk svc
	done
	policy svc 'fairshare uid_fair'
	echo auto >"$(at svc slots)"
	for disk in fast slow; do
		begin "a$disk" as=1001 --iodepth=64
		begin "b$disk" as=1002 --iodepth=64
	done
	saturated afast bfast aslow bslow
	pause 4
	gather 6 ended
	knees=("$(target knee 1)" "$(target knee 2)")
	fast=$(((got[0] + got[1]) * 1000000 / time)) slow=$(((got[2] + got[3]) * 1000000 / time))
	say "8 and 2 places: knees ${knees[*]}; $fast and $slow requests/s of 1000 and 200; ${got[*]}"
	[ "${knees[0]}" -le 12 ] && [ "${knees[1]}" -le 3 ] || fail "knees ${knees[*]}"
	more 0.96 "$fast" 1000 && more 0.92 "$slow" 200 || fail "$fast and $slow requests/s"
	within 2 "${got[0]}" "${got[1]}" || fail "shares of the fast disk: ${got[*]:0:2}"
	within 4 "${got[2]}" "${got[3]}" || fail "shares of the slow disk: ${got[*]:2}"
}

# threads: Verifies the knee of a server in user space with 16 threads.
threads() {
	local one two knee none
	module default_slots=auto
	mkdir /sys/kernel/config/nrs/svc
	[ "$(<"$(at svc slots)")" = auto ]
	policy svc 'fairshare uid_fair'
	server 10 --warmup 4 &
	sleep 12
	knee=$(target knee)
	wait $!
	one=$(of_load /tmp/load.json one served) two=$(of_load /tmp/load.json two served)
	within 2 "$one" "$two" || fail "shares: $one and $two"
	echo 1024 >"$(at svc slots)"
	server 5 --warmup 1
	none=$(($(of_load /tmp/load.json one served) + $(of_load /tmp/load.json two served)))
	say "16 places: knee $knee; $one and $two requests in 10 s, $none in 5 s with 1024 slots"
	more 0.96 $((one + two)) $((2 * none)) ||
		fail "$((one + two)) requests in 10 s, $none in 5 s with 1024 slots"
	[ $((2 * knee)) -le 49 ] || fail "knee $knee"
	rmdir /sys/kernel/config/nrs/svc
}

# server SECONDS OPTION...: Runs the server for two users.
server() {
	nrs-test load --service svc --busy 8000 --servers 16 --client name=one,uid=1001,depth=256 \
		--client name=two,uid=1002,depth=64 --seconds "$@" >/tmp/load.json
}

# 125 requests per second are few, so the search takes longer.
try 60 "1 place" knee 1 8000000 8
for places in 4 16; do try 60 "$places places" knee $places 8000000; done
# 1,333 requests per second, so that the CPU that counts instructions is not the bottleneck.
try 60 "32 places" knee 32 24000000
try 60 "the knee follows a disk that becomes ten times as fast, and as slow again" speed
for depth in 4 64; do try 60 "a user alone with $depth requests" one $depth; done
try 60 "two disks of different speed" unlike
try 60 "a server in user space with 16 threads" threads
remarks 'places: |requests: '
summary
