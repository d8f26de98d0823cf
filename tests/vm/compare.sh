#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# usage: compare.sh DEVICE REPEATS TIME [measures=MEASURE,...] [PEER...]
#
# What the schedulers of the kernel and those of nrs make of one device and the same clients. Started by scripts/compare.sh.
#
#   device   what is shared: fast, band, slow or loop (see make_device)
#   peer     what shares it: none, mq-deadline, kyber, bfq, io.max, io.cost, dm-linear, nrs-fifo, nrs-tbf, nrs-fairshare, nrs-qbm,
#            nrs-iosched (fairshare, as the I/O scheduler of the device)
#   client   who has a share: client N has cgroup cN and uid 1000+N, so that each peer can know it its own way
#   measure  one run of fio: one, many, mix, equal, four, eight, lone (see jobs_of)
#
# TIME is what part of the full time each run takes, percent. What a peer did is PEER.REPEAT.json (fio) and .facts in
# /out; /out/device says what the device can do, /out/not which peers it cannot have and why. `nrs-report compare` reads them.
. /tests/lib.sh
set -euo pipefail

device=$1 repeats=$2 time=$3
shift 3
measures=(one many mix equal four eight lone)
case ${1:-} in measures=*) IFS=, read -ra measures <<<"${1#*=}" && shift ;; esac
all_peers=(none mq-deadline kyber bfq io.max io.cost dm-linear nrs-fifo nrs-tbf nrs-fairshare nrs-qbm nrs-iosched)
peers=("$@")
[ $# -gt 0 ] || peers=("${all_peers[@]}")
groups=/sys/fs/cgroup
hw_depth=8         # requests that the devices with a latency take at a time
service_ns=2000000 # which they take for each
loop_ns=8000000    # the same of the disk below the loop device, 4 at a time
band_mbps=32       # MiB/s of the device that is capped
slots=8            # of nrs: as many as the device takes
margin=95          # percent of what was measured that is promised, capped or modelled, where a peer needs a figure

say() {
	echo "compare: $device: $*"
}

# part MS: that much of the full time, ms.
part() {
	echo $(($1 * time / 100))
}

# make_device: the disk /dev/$disk; how long runs on it settle, and are watched, ms.
make_device() {
	settle=200 lasts=$(part 1200) lasts_mix=$(part 2000) lasts_plain=500
	case $device in
	fast)
		disk=fast slots=64 lasts=$(part 600) lasts_mix=$(part 1000) lasts_plain=300
		null_blk_create fast size=1024 queue_mode=2 irqmode=0 hw_queue_depth=128 submit_queues=1
		;;
	band)
		disk=band
		null_blk_create band size=1024 queue_mode=2 irqmode=0 hw_queue_depth=128 submit_queues=1 mbps=$band_mbps
		;;
	slow)
		disk=slow
		null_blk_create slow size=1024 queue_mode=2 irqmode=2 completion_nsec=$service_ns hw_queue_depth=$hw_depth submit_queues=1
		;;
	loop)
		# Slower, as data is copied here, and blocks of 4 KiB, as that takes the least instructions.
		disk=loop0 slots=5 settle=400 lasts=$(part 2400) lasts_mix=$(part 4000) lasts_plain=800
		null_blk_create back size=160 blocksize=4096 queue_mode=2 irqmode=2 completion_nsec=$loop_ns hw_queue_depth=4 submit_queues=1 memory_backed=1
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
	chmod 666 "/dev/$disk"
	# A client's process enters its group itself, under its own uid.
	chmod 666 $groups/cgroup.procs
	for n in 1 2 3 4 5 6 7 8; do mkdir $groups/c$n && chmod 666 $groups/c$n/cgroup.procs; done
}

# scheduler NAME: of the disk; fails, with the reason in $why, if it cannot have it.
scheduler() {
	local now
	if ! why=$( (echo "$1" >"/sys/block/$disk/queue/scheduler") 2>&1); then why="the kernel refuses $1 there: ${why##*: }" && return 1; fi
	now=$(cat "/sys/block/$disk/queue/scheduler")
	case $now in *"[$1]"*) return 0 ;; esac
	why="the device offers only: $now"
	return 1
}

# nrs FILE VALUE: sets a parameter of the service of dm-nrs.
nrs() {
	if ! printf '%s\n' "$2" >"/sys/kernel/debug/nrs/compare/$1"; then echo "$1 = '$2' was refused" && exit 1; fi
}

# set_up PEER: $path is the device to use then. Fails, with the reason in $why, if it cannot be had.
set_up() {
	path=/dev/$disk why='' rules=()
	case $1 in
	mq-deadline | kyber | bfq) scheduler "$1" || return 1 ;;
	nrs-iosched)
		scheduler nrs || return 1
		# As nrsctl does.
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
		# No controlling by latency, so the model alone says what there is to share.
		echo "$number enable=1 ctrl=user rpct=0.00 rlat=100000 wpct=0.00 wlat=100000 min=100.00 max=100.00" >$groups/io.cost.qos
		echo "$number ctrl=user model=linear rbps=$((cap_256k * margin / 100 * 262144)) rseqiops=$((cap_4k * margin / 100)) rrandiops=$((cap_4k * margin / 100)) wbps=$((cap_256k * margin / 100 * 262144)) wseqiops=$((cap_4k * margin / 100)) wrandiops=$((cap_4k * margin / 100))" >$groups/io.cost.model
		;;
	dm-linear)
		dm_create peer "0 $length linear /dev/$disk 0"
		path=/dev/mapper/peer
		;;
	nrs-iosched)
		nrs slots "$slots"
		nrs nrs_policies 'fairshare uid_fair'
		;;
	nrs-*)
		dm_create peer "0 $length nrs /dev/$disk 0 compare"
		path=/dev/mapper/peer
		nrs slots "$slots"
		case $1 in
		nrs-fifo) nrs nrs_policies fifo ;;
		nrs-fairshare) nrs nrs_policies 'fairshare uid_fair' ;;
		nrs-tbf) nrs nrs_policies 'tbf uid' && nrs nrs_tbf_rule 'change default rate=10000000' ;;
		nrs-qbm) nrs nrs_policies qbm ;;
		esac
		;;
	esac
	chmod 666 "$path"
	path_number=$number
	[ "$path" = "/dev/$disk" ] || path_number=$(dm info -c --noheadings --separator : -o major,minor peer)
}

tear_down() {
	local n
	case $1 in
	io.max) for n in 1 2 3 4 5 6 7 8; do echo "$number riops=max" >$groups/c$n/io.max; done ;;
	io.cost) echo "$number enable=0" >$groups/io.cost.qos ;;
	nrs-iosched) scheduler none ;;
	dm-linear | nrs-*) dm_remove peer ;;
	esac
}

# entitle PEER SIZE CAPACITY WEIGHT...: what clients 1, 2, ... are to get of CAPACITY requests/s of SIZE KiB; where there is
# no CAPACITY (0), nobody is to be held back.
entitle() {
	local peer=$1 size=$2 cap=$(($3 * margin / 100)) sum=0 n=0 top=0 weight text='' rule
	shift 3
	for weight; do
		sum=$((sum + weight))
		[ "$weight" -le $top ] || top=$weight
	done
	case $peer in
	bfq)
		# With it, whoever is new or deep asleep gets more than its weight.
		if [ "$cap" = 0 ]; then echo 1; else echo "$low_latency"; fi >"/sys/block/$disk/queue/iosched/low_latency"
		for weight; do n=$((n + 1)) && echo $((weight * 100)) >$groups/c$n/io.bfq.weight; done
		;;
	io.cost) for weight; do n=$((n + 1)) && echo "default $((weight * 100))" >$groups/c$n/io.weight; done ;;
	io.max)
		for weight; do
			n=$((n + 1))
			if [ "$cap" = 0 ]; then echo "$number riops=100000000"; else echo "$number riops=$((cap * weight / sum))"; fi >$groups/c$n/io.max
		done
		;;
	nrs-fairshare | nrs-iosched)
		for weight; do n=$((n + 1)) && text+=" uid:$((1000 + n)):$weight"; done
		nrs nrs_fairshare_weights "${text# }"
		;;
	nrs-tbf)
		for rule in "${rules[@]}"; do nrs nrs_tbf_rule "stop $rule"; done
		rules=()
		for weight; do
			[ "$cap" != 0 ] || break
			n=$((n + 1)) && rules+=("u$n")
			nrs nrs_tbf_rule "start u$n uid={$((1000 + n))} rate=$((cap * weight / sum))"
		done
		;;
	nrs-qbm)
		# Everybody may have all; where they want more than there is, they share it as their minimums are.
		if [ "$cap" = 0 ]; then text='group all capacity=1000GB/s'; else text="group all capacity=$((cap * size * 1024))"; fi
		# The times of the method are cut as the runs are short.
		text="by uid;tune fast=200ms idle=200ms slow=1s;$text"
		for weight; do n=$((n + 1)) && text+=";client $((1000 + n)) class=fair_share min=$((100 * weight / top))% max=100%"; done
		nrs nrs_qbm_config "$text"
		;;
	esac
}

# job N SIZE DEPTH: adds a process of a client to $jobs: random reads of SIZE KiB, DEPTH in flight.
job() {
	jobs+=(--name="$run.c$1" --uid=$((1000 + $1)) --cgroup="c$1" --bs="${2}k" --iodepth="$3")
	processes=$((processes + 1))
}

# jobs_of MEASURE: makes $jobs, the clients at work in it; $ms, how long they are watched; $start, after which all of them have
# begun, and settled: entering a cgroup takes each process a while. They last for so long after it as well.
jobs_of() {
	local n
	run=$1 jobs=() ms=$lasts processes=0
	case $1 in
	# One client alone, and four, nobody held back.
	one) ms=$lasts_plain && job 1 4 32 ;;
	many) ms=$lasts_plain && for n in 1 2 3 4; do job $n 4 16; done ;;
	# A small client beside a greedy one, of equal right.
	mix) ms=$lasts_mix && job 1 4 1 && for n in 1 2 3 4 5 6; do job 2 64 32; done ;;
	# Equal right, unequal appetite: one process against four.
	equal) job 1 16 32 && for n in 1 2 3 4; do job 2 16 32; done ;;
	# Who has the greater right has fewer processes.
	four) job 2 16 48 && for n in 1 2 3; do job 1 16 32; done ;;
	# Every second one has two processes.
	eight) for n in 1 2 3 4 5 6 7 8 2 4 6 8; do job $n 16 16; done ;;
	# As equal, and the other one sleeps.
	lone) job 1 16 64 ;;
	# What the device can do, by size.
	cap*) job 1 "${1#cap}" 64 ;;
	*) echo "no measure '$1'" && exit 2 ;;
	esac
	start=$((settle + processes * 40))
}

# entitle_for PEER MEASURE: sets what its clients are to get.
entitle_for() {
	local cap16=$cap_16k cap64=$cap_64k
	case $1 in nrs-*) cap16=$nrs_16k cap64=$nrs_64k ;; esac
	low_latency=0
	case $2 in
	one) entitle "$1" 4 0 1 ;;
	many) entitle "$1" 4 0 1 1 1 1 ;;
	mix) low_latency=1 && entitle "$1" 64 "$cap64" 1 1 ;;
	equal | lone) entitle "$1" 16 "$cap16" 1 1 ;;
	four) entitle "$1" 16 "$cap16" 1 4 ;;
	eight) entitle "$1" 16 "$cap16" 1 1 1 1 1 1 1 1 ;;
	esac
}

# look FILE: appends the measure, the time, us, how long tasks had the CPU, ns, the requests that the disk has read, and those of
# each client: these come from the cgroups, as the ends of fio's own time differ from client to client. The time of tasks is what
# the scheduler measures; the idle time in /proc/stat is counted by ticks here, and says more than has passed. Interrupts
# count for the task that they interrupt, and for nobody while none runs.
look() {
	local reads tasks n dev ios=() _
	for n in 1 2 3 4 5 6 7 8; do reads_in $groups/c$n/io.stat "$path_number" && ios[n]=$reads; done
	read -r reads _ <"/sys/block/$disk/stat"
	while read -r dev _ _ _ _ _ _ tasks _; do [ "$dev" != cpu0 ] || break; done </proc/schedstat
	echo "$run ${EPOCHREALTIME/./} $tasks $reads ${ios[*]}" >>"$1"
}

# nap MS: waits without starting a process, which takes more instructions than a request does.
nap() {
	local text
	printf -v text '%d.%03d' $(($1 / 1000)) $(($1 % 1000))
	read -r -t "$text" -u 7 _ || true
}

# session FILE PEER MEASURE...: one fio for all measures, as its start takes longer than they do. Before each it asks, so that
# the clients are entitled while nobody is at work. Facts are from the middle of the time.
session() {
	local file=$1 peer=$2 all=() name before now i _
	shift 2
	for name; do
		jobs_of "$name"
		all+=(--name="$name.ask" --stonewall --ioengine=null --size=4k --exec_prerun="sh /tmp/ask" "${jobs[0]}" --stonewall)
		for ((i = 1; i < ${#jobs[@]}; i++)); do
			all+=("${jobs[i]}")
			case ${jobs[i]} in --iodepth=*) all+=(--time_based --runtime="$((ms + start))ms" --ramp_time="${start}ms") ;; esac
		done
	done
	chrt -o 0 fio --filename="$path" --rw=randread --direct=1 --ioengine=libaio --norandommap --randrepeat=1 --invalidate=0 --disk_util=0 \
		--cgroup_nodelete=1 --clat_percentiles=0 --lat_percentiles=1 --percentile_list=50:99:99.9 --output-format=json --output="$file.json" "${all[@]}" >/tmp/fio.log 2>&1 &
	for name; do
		jobs_of "$name"
		read -r -t 60 -u 8 _ || { echo "fio does not come to $name: $(tail -n 5 /tmp/fio.log "$file.json")" && exit 1; }
		entitle_for "$peer" "$name"
		read -r before _ <"/sys/block/$disk/stat"
		echo >&9
		for ((i = 0; i < 500; i++)); do
			read -r now _ <"/sys/block/$disk/stat"
			[ "$now" = "$before" ] || break
			nap 10
		done
		# A look takes the CPU for a while: where latency is measured, it keeps out of the time in which it is.
		case $name in
		mix) look "$file.facts" && nap $((start + ms + start)) && look "$file.facts" ;;
		*) nap "$start" && look "$file.facts" && nap "$ms" && look "$file.facts" ;;
		esac
	done
	wait $! || { echo "fio failed: $(tail -n 5 /tmp/fio.log)" && exit 1; }
}

# capacity FILE SIZE: requests/s of SIZE KiB in that session.
capacity() {
	awk -v m="cap$2" '$1 == m { t = $2 - t; n = $4 - n } END { printf "%d", n * 1e6 / t }' "$1.facts"
}

# calibrate: what the device can do by itself and behind dm-nrs. The first run warms up.
calibrate() {
	local file=/tmp/capacity
	set_up none
	cap_16k=0 cap_64k=0 nrs_16k=0 nrs_64k=0
	session $file none cap8 cap4 cap16 cap64 cap256
	cap_4k=$(capacity $file 4) cap_16k=$(capacity $file 16) cap_64k=$(capacity $file 64) cap_256k=$(capacity $file 256)
	tear_down none
	case " ${peers[*]} " in
	*' nrs-'*)
		rm $file.*
		set_up nrs-fifo
		session $file nrs-fifo cap16 cap64
		nrs_16k=$(capacity $file 16) nrs_64k=$(capacity $file 64)
		tear_down nrs-fifo
		;;
	esac
	printf '%s %s\n' kernel "$(uname -r)" device "$device" slots "$slots" margin "$margin" repeats "$repeats" time "$time" \
		settle_ms "$settle" run_ms "$lasts" mix_ms "$lasts_mix" plain_ms "$lasts_plain" \
		iops_4k "$cap_4k" iops_16k "$cap_16k" iops_64k "$cap_64k" iops_256k "$cap_256k" nrs_16k "$nrs_16k" nrs_64k "$nrs_64k" >/out/device
	say "requests/s of 4, 16, 64, 256 KiB: $cap_4k $cap_16k $cap_64k $cap_256k; through nrs 16, 64 KiB: $nrs_16k $nrs_64k"
}

cd /tmp
mkfifo asks go never
exec 7<>never 8<>asks 9<>go
echo 'echo x >/tmp/asks; read x </tmp/go' >ask
# Who looks must not wait for the CPU.
chrt -f -p 10 $$
load_nrs
make_device
calibrate
: >/out/not
order=("${peers[@]}")
for repeat in $(seq "$repeats"); do
	for peer in "${order[@]}"; do
		if ! set_up "$peer"; then
			[ "$repeat" != 1 ] || { echo "$peer $why" >>/out/not && say "$peer is not possible: $why"; }
			continue
		fi
		session "/out/$peer.$repeat" "$peer" "${measures[@]}"
		tear_down "$peer"
		say "repeat $repeat of $repeats, $peer: $SECONDS s"
	done
	mapfile -t order < <(printf '%s\n' "${order[@]}" | tac)
done
rmmod nrs
say done
