#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# usage: compare.sh DEVICE BOOT TIME [measures=MEASURE,...] [PEER...]
#
# Measures the kernel's schedulers and those of nrs on one device with the same clients. Started by
# scripts/compare.sh.
#
#   device   the shared device: fast, band, slow, slow8 or loop (see make_device)
#   peer     the scheduler: none, mq-deadline, kyber, bfq, bfq-idle0 (slice_idle=0), io.max,
#            io.cost, dm-tbf, dm-fairshare, dm-qbm (device-mapper targets of nrs), nrs (fairshare as
#            the device's I/O scheduler, with as many slots as the device serves at a time),
#            nrs-nohold, nrs-all[-SLOTS] (no slot, or all, kept free for a client with one request
#            at a time), nrs-latency[-PERCENT] (a latency to aim for, a little above that of the
#            idle device, or PERCENT of that), nrs-SLOTS
#   client   the owner of a share: client N has cgroup cN and uid 1000+N, so that each peer can
#            identify it
#   measure  one run of clients: one, mix, mix1, mix10, poisson, equal, four, eight, lone
#            (see clients_of)
#
# TIME is the length of each run, percent of the full length; an even BOOT has the peers in reverse
# order. Results in /out: runs has a line PEER MEASURE JSON for each run; device describes the
# device; not lists unsupported peers with the reason. `nrs-report compare` reads these files.
. /tests/lib.sh
set -euo pipefail

device=$1 boot=$2 time=$3
shift 3
measures=(one mix mix1 mix10 poisson equal four eight lone)
case ${1:-} in measures=*) IFS=, read -ra measures <<<"${1#*=}" && shift ;; esac
all_peers=(
	none mq-deadline kyber bfq bfq-idle0 io.max io.cost dm-tbf dm-fairshare dm-qbm
	nrs nrs-nohold nrs-latency nrs-latency-125 nrs-latency-150
	nrs-all nrs-all-2 nrs-all-3 nrs-all-4 nrs-1 nrs-2 nrs-4 nrs-8 nrs-16 nrs-auto
)
peers=("$@")
[ $# -gt 0 ] || peers=("${all_peers[@]}")
groups=/sys/fs/cgroup
aim=0        # latency to aim for, us
band_mbps=32 # MiB/s of the device with limited bandwidth
slots=8      # requests that the device serves at a time
margin=95    # percent of the measured capacity that is guaranteed, capped or modelled

say() {
	echo "compare: $device: $*"
}

# part MS: Prints that share of the full time, ms.
part() {
	echo $(($1 * time / 100))
}

# slow_disk NAME NS [KEY=VALUE...]: Creates a disk that serves $slots requests at a time in NS each.
slow_disk() {
	local name=$1 ns=$2
	shift 2
	null_blk_create "$name" queue_mode=2 irqmode=2 completion_nsec="$ns" hw_queue_depth=$slots \
		submit_queues=1 "$@"
}

# make_device: Creates the disk /dev/$disk; sets the settling time and the lengths of its runs, ms.
make_device() {
	disk=$device settle=200 lasts=$(part 1500) lasts_mix=$(part 4000)
	case $device in
	fast)
		slots=64 aim=200 lasts=$(part 600) lasts_mix=$(part 1000)
		null_blk_create fast size=1024 queue_mode=2 irqmode=0 hw_queue_depth=128 submit_queues=1
		;;
	band)
		# The device serves a burst each 20 ms, so the first shares take longer to settle.
		settle=800 lasts=$(part 3000) aim=500
		null_blk_create band size=1024 queue_mode=2 irqmode=0 hw_queue_depth=128 submit_queues=1 \
			mbps=$band_mbps
		;;
	slow) aim=2350 && slow_disk slow 2000000 size=1024 ;;
	slow8) lasts=$(part 3000) aim=8600 && slow_disk slow8 8000000 size=1024 ;;
	loop)
		# Blocks of 4 KiB take the fewest instructions.
		disk=loop0 slots=4 aim=9200 settle=400 lasts=$(part 3000)
		slow_disk back 8000000 size=160 blocksize=4096 memory_backed=1
		mke2fs -q -t ext4 -m 0 /dev/back
		modprobe ext4
		mkdir -p /mnt/back
		mount -t ext4 /dev/back /mnt/back
		dd if=/dev/zero of=/mnt/back/file bs=1M count=96 conv=fsync 2>/dev/null
		modprobe loop
		[ -b /dev/loop0 ] || mknod /dev/loop0 b 7 0
		losetup --direct-io=on --sector-size 4096 /dev/loop0 /mnt/back/file
		;;
	*) echo "no device '$device'" && exit 2 ;;
	esac
	number=$(cat "/sys/block/$disk/dev")
	length=$(sectors "/dev/$disk")
	modprobe -a mq-deadline kyber-iosched bfq 2>/dev/null || true
	for n in 1 2 3 4 5 6 7 8; do mkdir $groups/c$n; done
}

# scheduler NAME: Sets the scheduler of the disk; if it is unsupported, fails with the reason in
# $why.
scheduler() {
	local now
	if ! why=$( (echo "$1" >"/sys/block/$disk/queue/scheduler") 2>&1); then
		why="the kernel refuses $1 there: ${why##*: }" && return 1
	fi
	now=$(cat "/sys/block/$disk/queue/scheduler")
	case $now in *"[$1]"*) return 0 ;; esac
	why="the device offers only: $now"
	return 1
}

# nrs FILE VALUE: Sets a parameter of the service of dm-nrs.
nrs() {
	if ! printf '%s\n' "$2" >"/sys/kernel/debug/nrs/compare/$1"; then
		echo "$1 = '$2' was refused" && exit 1
	fi
}

# set_up PEER: Sets up the peer, and $path to its device. If it is unsupported, fails with the
# reason in $why.
set_up() {
	path=/dev/$disk why='' rules=()
	case $1 in
	mq-deadline | kyber) scheduler "$1" || return 1 ;;
	bfq*)
		scheduler bfq || return 1
		case $1 in bfq-idle0) echo 0 >"/sys/block/$disk/queue/iosched/slice_idle" ;; esac
		;;
	nrs*)
		scheduler nrs || return 1
		# The same value as nrsctl sets.
		echo 256 >"/sys/block/$disk/queue/nr_requests"
		echo compare >"/sys/block/$disk/queue/iosched/service"
		;;
	*) scheduler none || return 1 ;;
	esac
	case $1 in
	io.max)
		[ -e $groups/c1/io.max ] || { why='no io.max in this kernel' && return 1; }
		;;
	io.cost)
		[ -e $groups/io.cost.qos ] || { why='no io.cost in this kernel' && return 1; }
		# No control by latency, so that only the model limits the capacity.
		printf '%s %s %s\n' "$number" 'enable=1 ctrl=user rpct=0.00 rlat=100000' \
			'wpct=0.00 wlat=100000 min=100.00 max=100.00' >$groups/io.cost.qos
		local bps=$((cap_256k * margin / 100 * 262144)) iops=$((cap_4k * margin / 100))
		printf '%s ctrl=user model=linear %s %s\n' "$number" \
			"rbps=$bps rseqiops=$iops rrandiops=$iops" \
			"wbps=$bps wseqiops=$iops wrandiops=$iops" >$groups/io.cost.model
		;;
	nrs*)
		case $1 in
		nrs | nrs-nohold | nrs-all | nrs-latency*) nrs slots "$slots" ;;
		*) nrs slots "${1##*-}" ;;
		esac
		case $1 in
		nrs-nohold) nrs nrs_fairshare_hold_permille 0 ;;
		nrs-all* | nrs-latency*) nrs nrs_fairshare_hold_permille 1000 ;;
		esac
		case $1 in
		nrs-all*) nrs nrs_fairshare_hold all ;;
		nrs-latency) nrs nrs_fairshare_latency_us "$aim" ;;
		nrs-latency-*) nrs nrs_fairshare_latency_us $((aim * ${1##*-} / 100)) ;;
		esac
		nrs nrs_policies 'fairshare uid_fair'
		;;
	dm-*)
		dm_create peer "0 $length nrs /dev/$disk 0 compare"
		path=/dev/mapper/peer
		nrs slots "$slots"
		case $1 in
		dm-fairshare) nrs nrs_policies 'fairshare uid_fair' ;;
		dm-tbf) nrs nrs_policies 'tbf uid' && nrs nrs_tbf_rule 'change default rate=10000000' ;;
		dm-qbm) nrs nrs_policies qbm ;;
		esac
		;;
	esac
	chmod 666 "$path"
}

tear_down() {
	local n
	case $1 in
	io.max) for n in 1 2 3 4 5 6 7 8; do echo "$number riops=max" >$groups/c$n/io.max; done ;;
	io.cost) echo "$number enable=0" >$groups/io.cost.qos ;;
	nrs*) scheduler none ;;
	dm-*) dm_remove peer ;;
	esac
}

# entitle PEER SIZE CAPACITY WEIGHT...: Configures the shares of clients 1, 2, ... of CAPACITY
# requests/s of SIZE KiB; with CAPACITY 0 no client is limited.
entitle() {
	local peer=$1 size=$2 cap=$(($3 * margin / 100)) sum=0 n=0 top=0 weight text='' rule
	shift 3
	for weight; do
		sum=$((sum + weight))
		[ "$weight" -le $top ] || top=$weight
	done
	case $peer in
	bfq*)
		# With low_latency, new or long idle clients get more than their weight.
		if [ "$cap" = 0 ]; then
			echo 1
		else
			echo "$low_latency"
		fi >"/sys/block/$disk/queue/iosched/low_latency"
		for weight; do n=$((n + 1)) && echo $((weight * 100)) >$groups/c$n/io.bfq.weight; done
		;;
	io.cost)
		for weight; do n=$((n + 1)) && echo "default $((weight * 100))" >$groups/c$n/io.weight; done
		;;
	io.max)
		for weight; do
			n=$((n + 1))
			if [ "$cap" = 0 ]; then
				echo "$number riops=100000000"
			else
				echo "$number riops=$((cap * weight / sum))"
			fi >$groups/c$n/io.max
		done
		;;
	dm-fairshare | nrs*)
		for weight; do n=$((n + 1)) && text+=" uid:$((1000 + n)):$weight"; done
		nrs nrs_fairshare_weights "${text# }"
		;;
	dm-tbf)
		for rule in "${rules[@]}"; do nrs nrs_tbf_rule "stop $rule"; done
		rules=()
		for weight; do
			[ "$cap" != 0 ] || break
			n=$((n + 1)) && rules+=("u$n")
			nrs nrs_tbf_rule "start u$n uid={$((1000 + n))} rate=$((cap * weight / sum))"
		done
		;;
	dm-qbm)
		# Each client may use the whole capacity; under contention they share it in the ratio of
		# their minimums.
		if [ "$cap" = 0 ]; then
			text='group all capacity=1000GB/s'
		else
			text="group all capacity=$((cap * size * 1024))"
		fi
		# The method's time constants are shortened because the runs are short.
		text="by uid;tune fast=200ms idle=200ms slow=1s;$text"
		for weight; do
			n=$((n + 1)) &&
				text+=";client $((1000 + n)) class=fair_share min=$((100 * weight / top))% max=100%"
		done
		nrs nrs_qbm_config "$text"
		;;
	esac
}

# clients_of MEASURE: Sets $clients to the clients (KIB:DEPTH:PROCESSES:PAUSE, as nrs-test takes
# them), $weights to their weights, and $ms to the length of the run.
clients_of() {
	local greedy=64:32:6
	ms=$lasts weights=(1 1)
	case $1 in
	# One client alone, without limits.
	one) ms=$(part 500) clients=(4:32) weights=(1) ;;
	# A small client beside a greedy one, with equal weights: one request at a time, without and
	# with a pause, or at random times.
	mix) ms=$lasts_mix clients=(4:1 $greedy) ;;
	mix1) ms=$lasts_mix clients=(4:1:1:1 $greedy) ;;
	mix10) ms=$lasts_mix clients=(4:1:1:10 $greedy) ;;
	poisson) ms=$lasts_mix clients=(4:128:1:~10 $greedy) ;;
	# Equal weights, unequal demand: one process against four.
	equal) clients=(16:32 16:32:4) ;;
	# The client with the greater weight has fewer processes.
	four) clients=(16:32:3 16:48) weights=(1 4) ;;
	# Every second client has two processes.
	eight)
		weights=(1 1 1 1 1 1 1 1)
		clients=(16:16 16:16:2 16:16 16:16:2 16:16 16:16:2 16:16 16:16:2)
		;;
	# As equal, with the other client idle.
	lone) clients=(16:64) ;;
	*) echo "no measure '$1'" && exit 2 ;;
	esac
}

# entitle_for PEER MEASURE: Configures the clients' shares for the measure.
entitle_for() {
	low_latency=0
	case $2 in
	one) entitle "$1" 4 0 1 ;;
	mix* | poisson) low_latency=1 && entitle "$1" 64 "$cap_64k" 1 1 ;;
	*) entitle "$1" 16 "$cap_16k" "${weights[@]}" ;;
	esac
}

# load MS CLIENT...: Prints what the clients got.
load() {
	nrs-test clients --settle "$settle" --time "$1" "$path" "${@:2}"
}

# session PEER: Measures the peer. Of other settings than the usual one only the mix is of interest.
session() {
	local name settle=$settle
	# The search for the number of slots takes some seconds.
	case $1 in nrs-auto | nrs-latency*) settle=5000 ;; esac
	for name in "${measures[@]}"; do
		case $1-$name in
		nrs-nohold-mix* | nrs-nohold-poisson | nrs-all-mix* | nrs-all-poisson) ;;
		nrs-all-four | nrs-all-lone | nrs-*-mix | bfq-idle0-mix) ;;
		nrs-*-* | bfq-idle0-*) continue ;;
		esac
		clients_of "$name"
		entitle_for "$1" "$name"
		echo "$1 $name $(load "$ms" "${clients[@]}")" >>/out/runs
	done
}

# capacity KIB: Prints the requests/s of the device.
capacity() {
	load 500 "$1:32:2" | sed -E 's/.*"rate":([0-9]+).*/\1/'
}

# calibrate: Measures the capacity of the device. The first run is a warm-up.
calibrate() {
	set_up none
	capacity 8 >/dev/null
	cap_4k=$(capacity 4) cap_16k=$(capacity 16) cap_64k=$(capacity 64) cap_256k=$(capacity 256)
	tear_down none
	printf '%s %s\n' kernel "$(uname -r)" device "$device" slots "$slots" margin "$margin" time \
		"$time" settle_ms "$settle" run_ms "$lasts" mix_ms "$lasts_mix" iops_4k "$cap_4k" \
		iops_16k "$cap_16k" iops_64k "$cap_64k" iops_256k "$cap_256k" >/out/device
	say "requests/s of 4, 16, 64, 256 KiB: $cap_4k $cap_16k $cap_64k $cap_256k"
}

load_nrs
make_device
calibrate
: >/out/not
: >/out/runs
[ $((boot % 2)) = 1 ] || mapfile -t peers < <(printf '%s\n' "${peers[@]}" | tac)
for peer in "${peers[@]}"; do
	if ! set_up "$peer"; then
		echo "$peer $why" >>/out/not && say "$peer is not possible: $why"
		continue
	fi
	session "$peer"
	tear_down "$peer"
	say "boot $boot, $peer: $SECONDS s"
done
rmmod nrs
say done
