#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# usage: compare.sh DEVICE REPEATS TIME [measures=MEASURE,...] [PEER...]
#
# Measures the kernel's schedulers and those of nrs on one device with the same clients. Started by
# scripts/compare.sh.
#
#   device   the shared device: fast, band, slow or loop (see make_device)
#   peer     the scheduler: none, mq-deadline, kyber, bfq, io.max, io.cost, dm-linear, nrs-fifo,
#            nrs-tbf, nrs-fairshare, nrs-qbm, nrs-iosched (fairshare, as the device's I/O scheduler)
#   client   the owner of a share: client N has cgroup cN and uid 1000+N, so that each peer can
#            identify it
#   measure  one run of fio: one, many, mix, equal, four, eight, lone (see jobs_of)
#
# TIME is the length of each run, percent of the full length. Results in /out: PEER.REPEAT.json
# (fio) and PEER.REPEAT.facts for each peer; device describes the device; not lists unsupported
# peers with the reason. `nrs-report compare` reads these files.
. /tests/lib.sh
set -euo pipefail

device=$1 repeats=$2 time=$3
shift 3
measures=(one many mix equal four eight lone)
case ${1:-} in measures=*) IFS=, read -ra measures <<<"${1#*=}" && shift ;; esac
all_peers=(
	none mq-deadline kyber bfq io.max io.cost dm-linear nrs-fifo nrs-tbf nrs-fairshare nrs-qbm
	nrs-iosched
)
peers=("$@")
[ $# -gt 0 ] || peers=("${all_peers[@]}")
groups=/sys/fs/cgroup
hw_depth=8         # requests in flight of the devices with a latency
service_ns=2000000 # service time per request of these devices
loop_ns=8000000    # service time of the disk below the loop device, 4 requests at a time
band_mbps=32       # MiB/s of the device with limited bandwidth
slots=8            # of nrs: equal to the queue depth of the device
margin=95          # percent of the measured capacity that is guaranteed, capped or modelled

say() {
	echo "compare: $device: $*"
}

# part MS: Prints that share of the full time, ms.
part() {
	echo $(($1 * time / 100))
}

# make_device: Creates the disk /dev/$disk; sets the settling time and the lengths of its runs, ms.
make_device() {
	settle=200 lasts=$(part 1200) lasts_mix=$(part 2000) lasts_plain=500
	case $device in
	fast)
		disk=fast slots=64 lasts=$(part 600) lasts_mix=$(part 1000) lasts_plain=300
		null_blk_create fast size=1024 queue_mode=2 irqmode=0 hw_queue_depth=128 submit_queues=1
		;;
	band)
		# The device serves a burst each 20 ms, so the first shares take longer to settle.
		disk=band settle=800
		null_blk_create band size=1024 queue_mode=2 irqmode=0 hw_queue_depth=128 submit_queues=1 \
			mbps=$band_mbps
		;;
	slow)
		disk=slow
		null_blk_create slow size=1024 queue_mode=2 irqmode=2 completion_nsec=$service_ns \
			hw_queue_depth=$hw_depth submit_queues=1
		;;
	loop)
		# Slower, because data is copied here; blocks of 4 KiB, because they take the fewest
		# instructions.
		disk=loop0 slots=5 settle=400 lasts=$(part 2400) lasts_mix=$(part 4000) lasts_plain=800
		null_blk_create back size=160 blocksize=4096 queue_mode=2 irqmode=2 \
			completion_nsec=$loop_ns hw_queue_depth=4 submit_queues=1 memory_backed=1
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
	mq-deadline | kyber | bfq) scheduler "$1" || return 1 ;;
	nrs-iosched)
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
	[ "$path" = "/dev/$disk" ] ||
		path_number=$(dm info -c --noheadings --separator : -o major,minor peer)
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
	bfq)
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

# job N SIZE DEPTH: Adds a process of client N to $jobs: random reads of SIZE KiB, DEPTH in flight.
job() {
	jobs+=(--name="$run.c$1" --uid=$((1000 + $1)) --cgroup="c$1" --bs="${2}k" --iodepth="$3")
	processes=$((processes + 1))
}

# jobs_of MEASURE: Sets $jobs to the running clients; $ms to the observed time; and $start to the
# time in which all clients start and settle, because entering a cgroup takes each process some
# time. They run for another $start after $ms.
jobs_of() {
	local n
	run=$1 jobs=() ms=$lasts processes=0
	case $1 in
	# One client alone, and four clients, without limits.
	one) ms=$lasts_plain && job 1 4 32 ;;
	many) ms=$lasts_plain && for n in 1 2 3 4; do job $n 4 16; done ;;
	# A small client beside a greedy one, with equal weights.
	mix) ms=$lasts_mix && job 1 4 1 && for n in 1 2 3 4 5 6; do job 2 64 32; done ;;
	# Equal weights, unequal demand: one process against four.
	equal) job 1 16 32 && for n in 1 2 3 4; do job 2 16 32; done ;;
	# The client with the greater weight has fewer processes.
	four) job 2 16 48 && for n in 1 2 3; do job 1 16 32; done ;;
	# Every second client has two processes.
	eight) for n in 1 2 3 4 5 6 7 8 2 4 6 8; do job $n 16 16; done ;;
	# As equal, with the other client idle.
	lone) job 1 16 64 ;;
	# Capacity of the device, by size.
	cap*) job 1 "${1#cap}" 64 ;;
	*) echo "no measure '$1'" && exit 2 ;;
	esac
	start=$((settle + processes * 40))
}

# entitle_for PEER MEASURE: Configures the clients' shares for the measure.
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

# look FILE: Appends the measure; the time, us; the CPU time of tasks, ns; the requests that the
# disk has read; and those of each client. Client counts come from the cgroups, because fio's own
# times differ from client to client. The scheduler measures the CPU time of tasks; /proc/stat
# counts idle time in ticks and exceeds the elapsed time here. Interrupts count for the interrupted
# task, and for no task while the CPU is idle.
look() {
	local reads tasks n dev ios=() _
	for n in 1 2 3 4 5 6 7 8; do reads_in $groups/c$n/io.stat "$path_number" && ios[n]=$reads; done
	read -r reads _ <"/sys/block/$disk/stat"
	while read -r dev _ _ _ _ _ _ tasks _; do [ "$dev" != cpu0 ] || break; done </proc/schedstat
	echo "$run ${EPOCHREALTIME/./} $tasks $reads ${ios[*]}" >>"$1"
}

# nap MS: Waits without starting a process, which would take more instructions than a request.
nap() {
	local text
	printf -v text '%d.%03d' $(($1 / 1000)) $(($1 % 1000))
	read -r -t "$text" -u 7 _ || true
}

# session FILE PEER MEASURE...: Runs one fio for all measures, because its start takes longer than a
# measure. fio waits before each measure, so that the shares are configured while no client runs.
# The facts cover the middle of the run.
session() {
	local file=$1 peer=$2 all=() name before now i _
	shift 2
	for name; do
		jobs_of "$name"
		all+=(
			--name="$name.ask" --stonewall --ioengine=null --size=4k --exec_prerun="sh /tmp/ask"
			"${jobs[0]}" --stonewall
		)
		for ((i = 1; i < ${#jobs[@]}; i++)); do
			all+=("${jobs[i]}")
			case ${jobs[i]} in
			--iodepth=*)
				all+=(--time_based --runtime="$((ms + start))ms" --ramp_time="${start}ms")
				;;
			esac
		done
	done
	chrt -o 0 fio --filename="$path" --rw=randread --direct=1 --ioengine=libaio --norandommap \
		--randrepeat=1 --invalidate=0 --disk_util=0 --cgroup_nodelete=1 --clat_percentiles=0 \
		--lat_percentiles=1 --percentile_list=50:99:99.9 --output-format=json \
		--output="$file.json" "${all[@]}" >/tmp/fio.log 2>&1 &
	for name; do
		jobs_of "$name"
		read -r -t 60 -u 8 _ || {
			echo "fio does not come to $name: $(tail -n 5 /tmp/fio.log "$file.json")" && exit 1
		}
		entitle_for "$peer" "$name"
		read -r before _ <"/sys/block/$disk/stat"
		echo >&9
		for ((i = 0; i < 500; i++)); do
			read -r now _ <"/sys/block/$disk/stat"
			[ "$now" = "$before" ] || break
			nap 10
		done
		# A look takes CPU time: where latency is measured, it is outside the measured time.
		case $name in
		mix) look "$file.facts" && nap $((start + ms + start)) && look "$file.facts" ;;
		*) nap "$start" && look "$file.facts" && nap "$ms" && look "$file.facts" ;;
		esac
	done
	wait $! || { echo "fio failed: $(tail -n 5 /tmp/fio.log)" && exit 1; }
}

# capacity FILE SIZE: Prints the requests/s of SIZE KiB in that session.
capacity() {
	awk -v m="cap$2" '$1 == m { t = $2 - t; n = $4 - n } END { printf "%d", n * 1e6 / t }' \
		"$1.facts"
}

# calibrate: Measures the capacity of the device, directly and behind dm-nrs. The first run is a
# warm-up.
calibrate() {
	local file=/tmp/capacity
	set_up none
	cap_16k=0 cap_64k=0 nrs_16k=0 nrs_64k=0
	session $file none cap8 cap4 cap16 cap64 cap256
	cap_4k=$(capacity $file 4) cap_16k=$(capacity $file 16) cap_64k=$(capacity $file 64) \
		cap_256k=$(capacity $file 256)
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
	printf '%s %s\n' kernel "$(uname -r)" device "$device" slots "$slots" margin "$margin" repeats \
		"$repeats" time "$time" settle_ms "$settle" run_ms "$lasts" mix_ms "$lasts_mix" plain_ms \
		"$lasts_plain" iops_4k "$cap_4k" iops_16k "$cap_16k" iops_64k "$cap_64k" iops_256k \
		"$cap_256k" nrs_16k "$nrs_16k" nrs_64k "$nrs_64k" >/out/device
	say "requests/s of 4, 16, 64, 256 KiB: $cap_4k $cap_16k $cap_64k $cap_256k;" \
		"through nrs 16, 64 KiB: $nrs_16k $nrs_64k"
}

cd /tmp
mkfifo asks go never
exec 7<>never 8<>asks 9<>go
echo 'echo x >/tmp/asks; read x </tmp/go' >ask
# The observing process must not wait for the CPU.
chrt -f -p 10 $$
load_nrs
make_device
calibrate
: >/out/not
order=("${peers[@]}")
for repeat in $(seq "$repeats"); do
	for peer in "${order[@]}"; do
		if ! set_up "$peer"; then
			[ "$repeat" != 1 ] || {
				echo "$peer $why" >>/out/not && say "$peer is not possible: $why"
			}
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
