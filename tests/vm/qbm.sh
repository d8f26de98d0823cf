#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# usage: qbm.sh [FUNCTION...]
#
# Bandwidth. The disk provides a little more than 40 MB/s, the capacity of the group; each client
# always has requests of 64 KiB queued, so that the allocator decides the shares. Clients are the
# devices a, b, c and d by default.
. /tests/nrs.sh

only=$*

# setup COUNT [CPTS]: Creates COUNT devices, named from a, on one disk.
setup() {
	local names=(a b c d) name
	module
	lower nb0 size=1024 mbps=44 irqmode=2 completion_nsec=500000 hw_queue_depth=1024
	echo none >/sys/block/nb0/queue/scheduler 2>/dev/null || true
	mkdir /sys/kernel/config/nrs/svc
	[ -z "${2:-}" ] || echo "$2" >/sys/kernel/config/nrs/svc/cpts
	for name in "${names[@]:0:$1}"; do client "$name" /dev/nb0 svc; done
	echo 8 >"$(at svc slots)"
}

# plan TEXT: Sets the configuration, and the policy if it is not set yet.
plan() {
	printf '%s\n' "$1" >/tmp/plan
	cat /tmp/plan >"$(at svc nrs_qbm_config)" || fail "$(cat "$(at svc nrs_qbm_config_error)")"
	[ -n "${planned:-}" ] || policy svc qbm
	planned=1
}

# of DEVICE KEY: Prints the first value of that name in the client's status.
of() {
	awk -v c="\"device:$1\"" -v k="$2:" \
		'/client:/ { on = index($0, c) }
			on { for (i = 1; i < NF; i++) if ($i == k) { gsub(/[,}"]/, "", $(i + 1));
				print $(i + 1); exit } }' "$(at svc nrs_qbm_status)"
}

# begin DEVICE [OPTION...]: Starts reads, $loader.
begin() {
	local name=$1
	shift
	(
		fio() { exec /bin/fio "$@"; }
		load "$name" --thread --bs=64k --iodepth=16 --time_based --runtime=300 \
			"$@" >"/tmp/load-$name.txt" 2>&1
	) &
	loader=$!
}

# finish PID: Kills the load and waits for its end.
finish() {
	kill -KILL "$1"
	wait "$1" 2>/dev/null || true
}

# MB: bytes of a megabyte, the unit of rates.
MB=1000000

# gets PERCENT SECONDS MEGABYTES...: Verifies the throughput of the devices in that time, per
# second, in order; `-` is ignored.
gets() {
	local percent=$1 want=("${@:3}") i
	gather "$2" bytes
	for i in "${!want[@]}"; do
		[ "${want[i]}" != - ] || continue
		awk -v p="$percent" -v got="${got[i]}" -v us="$time" -v want="${want[i]}" 'BEGIN {
			rate = got / us; d = rate - want; if (d < 0) d = -d
			exit !(want == 0 ? rate < 0.3 : d * 100 <= p * want)
		}' || fail "device $i: ${got[i]} bytes in $time us, not ${want[i]} MB/s:" \
			"$(cat "$(at svc nrs_qbm_status)")"
	done
}

# until_gets SECONDS DEVICE MEGABYTES: Waits until the device has at least that allocation.
until_gets() {
	wait_for "$1" "[ \$(($(printf '%s' "\$(of $2 allocated)") + 0)) -ge $(($3 * MB)) ]" ||
		fail "$2 is not given $3 MB/s within $1 s: $(cat "$(at svc nrs_qbm_status)")"
}

fair_share() {
	setup 4
	plan "by device
group all capacity=40MB/s
default class=fair_share min=12MB/s max=12MB/s"
	local name
	for name in a b c; do begin $name && until_gets 5 $name 12; done
	sleep 0.5
	gets 4 3 12 12 12 0
	# A late client gets as much as the others, at once.
	begin d
	until_gets 3 d 10
	sleep 0.5
	gets 4 4 10 10 10 10
	within 1 "$(of a allocated)" "$(of d allocated)"
	# In the ratio of their minimums.
	plan "by device
group all capacity=40MB/s
client a class=fair_share min=30MB/s max=40MB/s
default class=fair_share min=10MB/s max=10MB/s"
	until_gets 3 a 20
	sleep 0.5
	gets 4 3 20 6.667 6.667 6.667
}

# Verifies that a client of the higher class takes its minimum from the other client, and returns it
# when its load ends. The other client keeps the rest.
against() {
	setup 2
	plan "by device
group all capacity=40MB/s
client a class=mover min=30MB/s max=40MB/s
client b class=first_come min=24MB/s max=24MB/s"
	begin a
	until_gets 5 a 40
	sleep 0.5
	gets 4 2 40 0
	begin b
	local loads=$loader
	until_gets 3 b 24
	sleep 0.5
	gets 4 3 16 24
	finish "$loads"
	local start=${EPOCHREALTIME/./}
	until_gets 5 a 40
	[ $((${EPOCHREALTIME/./} - start)) -le 2000000 ] ||
		fail "given back after $(((${EPOCHREALTIME/./} - start) / 1000)) ms"
	sleep 0.3
	gets 4 2 40 -
}

# Verifies that clients of first_come keep what the first of them got, that a late one waits with
# 32 KiB/s, and that it is given its minimum when an earlier one leaves.
first_come() {
	setup 4
	plan "by device
group all capacity=40MB/s
default class=first_come min=12MB/s max=12MB/s"
	local name first=''
	for name in a b c; do
		begin $name
		first=${first:-$loader}
		until_gets 5 $name 12
	done
	begin d
	wait_for 5 '[ -n "$(of d allocated)" ]'
	sleep 0.5
	gets 4 3 12 12 12 0
	[ "${got[3]}" -gt 0 ] || fail "the late client starves"
	finish "$first"
	until_gets 5 d 12
	sleep 0.5
	gets 4 2 0 12 12 12
}

# Verifies that each period a client that uses its bandwidth asks for 30 % more, and that one that
# uses less than 60 % returns a tenth.
adjusted() {
	setup 2
	plan "by device
tune slow=3s
group all capacity=40MB/s
client a class=fair_share min=8MB/s max=30MB/s
client b class=low_share min=8MB/s max=8MB/s"
	begin a
	begin b --iodepth=1 --rate=2m
	wait_for 5 '[ -n "$(of a allocated)" ] && [ -n "$(of b allocated)" ]'
	[ "$(of a allocated)" = $((8 * MB)) ] && [ "$(of b allocated)" = $((8 * MB)) ] ||
		fail "$(cat "$(at svc nrs_qbm_status)")"
	until_gets 4 a 10
	within 1 "$(of a allocated)" $((8 * MB * 13 / 10))
	within 1 "$(of b allocated)" $((8 * MB * 9 / 10))
	until_gets 15 a 29
	sleep 0.5
	gets 4 2 30 2.097
	local least=$((8 * MB * 9 * 9 * 9 / 1000))
	[ "$(of b allocated)" -le $least ] || fail "b keeps $(of b allocated)"
}

# regular SECONDS: Sets $rate_a and $rate_b to the throughput of a and b, bytes/s.
regular() {
	gather "$1" bytes
	rate_a=$((got[0] * 1000 / (time / 1000))) rate_b=$((got[1] * 1000 / (time / 1000)))
}

# Verifies a mover beside an unregulated client: the latter keeps its throughput, and the mover gets
# almost all of the rest.
mover() {
	setup 2
	plan "by device
group all capacity=40MB/s strategy=mover
client a class=mover min=40MB/s"
	local rate_a rate_b alone load mover
	for load in 16m $(brief '' 26m) ''; do
		begin b ${load:+--rate=$load}
		local it=$loader
		wait_for 5 '[ "$(counter b ended)" -gt 20 ]'
		sleep 1
		regular 3
		alone=$rate_b
		begin a
		mover=$loader
		wait_for 5 '[ -n "$(of a allocated)" ]'
		sleep 2
		regular 4
		say "regular ${load:-all it can}: alone $alone, with the mover $rate_b bytes/s;" \
			"the mover $rate_a"
		[ $((rate_b * 100)) -ge $((alone * 97)) ] ||
			fail "the regular client lost: $rate_b of $alone: $(cat "$(at svc nrs_qbm_status)")"
		# The rest of the capacity; less than a twentieth is not checked.
		[ $((40 * MB - rate_b)) -le $((2 * MB)) ] ||
			[ $((rate_a * 100)) -ge $(((40 * MB - rate_b) * 90)) ] ||
			fail "the mover leaves bandwidth unused: $rate_a beside $rate_b:" \
				"$(cat "$(at svc nrs_qbm_status)")"
		# Without the other load, the mover gets all of it.
		finish $it
		sleep 2
		regular 2
		[ $((rate_a * 100)) -ge $((40 * MB * 90)) ] ||
			fail "without other load the mover gets $rate_a"
		finish $mover
		wait_for 5 '[ "$(counter a held)" = 0 ]'
	done
}

# Verifies users in both priorities: a client is the same, from whatever device its requests come.
identities() {
	setup 3
	plan "by uid
group all capacity=40MB/s
client 1001 class=first_come min=12MB/s max=12MB/s
default class=low_share min=6MB/s max=6MB/s"
	load a as=1001 --bs=64k --time_based --runtime=300 >/dev/null 2>&1 &
	(
		fio() { ionice -c 1 setpriv --reuid 1001 --clear-groups /bin/fio "$@"; }
		load b --bs=64k --time_based --runtime=300 >/dev/null 2>&1
	) &
	load c as=1002 --bs=64k --time_based --runtime=300 >/dev/null 2>&1 &
	wait_for 10 'grep -q "uid:1001" "$(at svc nrs_qbm_status)" &&
		grep -q "uid:1002" "$(at svc nrs_qbm_status)"' || fail "$(cat "$(at svc nrs_qbm_status)")"
	saturated a b c
	sleep 1
	gather 3 bytes
	# Neither head starves the other.
	within 50 "${got[0]}" "${got[1]}" || fail "${got[*]}: one head gets too little"
	within 4 $(((got[0] + got[1]) * 1000 / (time / 1000))) $((12 * MB)) ||
		fail "${got[*]}: $(cat "$(at svc nrs_qbm_status)")"
	within 4 $((got[2] * 1000 / (time / 1000))) $((6 * MB)) || fail "${got[*]}"
}

# Verifies that the output of nrsctl measure is a valid configuration.
measured() {
	setup 2
	nrsctl measure --time 10 --max-depth 16 --name all /dev/nb0 >/tmp/measured || fail "status $?"
	cat /tmp/measured
	[ "$(grep -c '^# ' /tmp/measured)" = 8 ]
	local capacity
	capacity=$(sed -n 's/^group all capacity=\([0-9]*\)KB.*/\1/p' /tmp/measured)
	# null_blk's unit is MiB.
	within 6 "$capacity" $((44 * 1048576 / 1000 * 95 / 100)) || fail "$capacity KB/s proposed"
	plan "by device
$(cat /tmp/measured)
client b class=low_share min=10MB/s"
	begin a
	until_gets 5 a $((capacity / 1000))
	begin b
	sleep 2
	cat "$(at svc nrs_qbm_status)"
	local status=0
	nrsctl measure /dev/null || status=$?
	[ "$status" = 4 ] || fail "status $status of what is no disk"
}

long try 60 "nrsctl measure proposes a group" measured
try 60 "four of 300 in 1000, fair share: 250 each" fair_share
try 60 "steal and return" against
try 60 "first_come: a late client waits, and follows one that leaves" first_come
try 60 "bandwidth is raised and lowered by use" adjusted
long try 120 "a mover beside an unregulated client" mover
long try 60 "one client on two devices and in both priorities" identities
remarks '^(regular|back)'
summary
