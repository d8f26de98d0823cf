#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Groups and clients of qbm in configfs: nrs/SERVICE/qbm/GROUP/clients/NAME is the same as what nrs_qbm_config shows.
. /tests/nrs.sh

top=/sys/kernel/config/nrs
dir=$top/svc/qbm

# service [POLICY]: one without clients, qbm on both heads unless told otherwise.
service() {
	module
	mkdir $top/svc
	policy svc "${1:-qbm}"
}

# configure TEXT: the whole configuration, in one write; \n are line ends.
configure() {
	printf '%b' "$1" >/tmp/plan
	dd if=/tmp/plan of="$(at svc nrs_qbm_config)" bs=512k conv=notrunc 2>/tmp/said || fail "'$1' refused: $(</tmp/said)"
}

# config LINE...: what the configuration is; starts no process.
config() {
	local IFS=$'\n' lines
	mapfile -t lines </sys/kernel/debug/nrs/svc/nrs_qbm_config
	[ "${lines[*]}" = "$*" ] || fail "the configuration is '${lines[*]}', not '$*'"
}

# said TEXT: why the last change was refused.
said() {
	local is
	read -r is </sys/kernel/debug/nrs/svc/nrs_qbm_config_error || true
	case $is in *"$1"*) ;; *) fail "the error is '$is', not '$1'" ;; esac
}

# put DIRECTORY ATTRIBUTE VALUE
put() {
	echo "$3" >"$dir/$1/$2" || fail "$1/$2 = '$3' refused: $(<"$(at svc nrs_qbm_config_error)")"
}

# has DIRECTORY ATTRIBUTE VALUE
has() {
	local is
	read -r is <"$dir/$1/$2"
	[ "$is" = "$3" ] || fail "$1/$2 is '$is', not '$3'"
}

# made GROUP CAPACITY [ATTRIBUTE=VALUE...]: a group.
made() {
	local name=$1 capacity=$2 pair
	mkdir "$dir/$name"
	shift 2
	for pair; do put "$name" "${pair%%=*}" "${pair#*=}"; done
	put "$name" capacity "$capacity"
}

# listed GROUP NAME CLASS MIN [MAX]: a client.
listed() {
	local place=$1/clients/$2
	mkdir "$dir/$place"
	put "$place" class "$3"
	[ -z "${5:-}" ] || put "$place" max "$5"
	put "$place" min "$4"
}

# mode FILE
mode() {
	stat -c %a "$1"
}

# names DIRECTORY
names() {
	local name all=''
	for name in "$1"/*; do [ ! -e "$name" ] || all+="${name##*/} "; done
	echo "$all"
}

directories() {
	module
	mkdir $top/svc
	[ -d $dir ] || fail "no qbm in a new service"
	[ "$(names $top/svc)" = "cpts qbm rules slots state " ] || fail "$(names $top/svc)"
	[ "$(names $dir)" = "by " ] || fail "$(names $dir)"
	refused EPERM rmdir $dir
	mkdir $dir/one $dir/253:7 $dir/a-b_c.d@e
	[ "$(names $dir/one)" = "capacity class clients max min reserve_fair_share reserve_first_come reserve_low_share reserve_mover strategy target " ] ||
		fail "$(names $dir/one)"
	refused EPERM rmdir $dir/one/clients
	refused EPERM mkdir $dir/one/client
	refused EEXIST mkdir $dir/one
	local name
	for name in 'a b' a+b a,b .a $'\303\251' 'a;b'; do
		refused EINVAL mkdir "$dir/$name"
		said "a group's name"
	done
	name=$(printf 'x%.0s' {1..64})
	refused ENAMETOOLONG mkdir "$dir/$name"
	mkdir "$dir/${name:1}"
	mkdir $dir/one/clients/10.0.0.1@tcp "$dir/one/clients/10.0.0.[1-9]@tcp" "$dir/one/clients/*@o2ib"
	[ "$(names $dir/one/clients/10.0.0.1@tcp)" = "allocated class max min " ] || fail "$(names $dir/one/clients/10.0.0.1@tcp)"
	[ "$(mode $dir/one/clients/10.0.0.1@tcp/allocated)" = 440 ] || fail "allocated: $(mode $dir/one/clients/10.0.0.1@tcp/allocated)"
	[ "$(mode $dir/one/clients/10.0.0.1@tcp/min)" = 660 ] || fail "min: $(mode $dir/one/clients/10.0.0.1@tcp/min)"
	[ "$(mode $dir/one/capacity)" = 660 ] || fail "capacity: $(mode $dir/one/capacity)"
	for name in 5 host 'a b' '10.0.0.[9-1]@tcp' '#'; do
		refused EINVAL mkdir "$dir/one/clients/$name"
	done
	said "a client's name"
	refused EPERM mkdir $dir/one/clients/10.0.0.1@tcp/x
	refused ENOTEMPTY rmdir $dir/one
	refused ENOTEMPTY rmdir $top/svc
	# Drafts are no part of the configuration.
	config
	mkdir $top/other
	mkdir $top/other/qbm/one
	rmdir $top/other/qbm/one $top/other
	refused EBUSY rmmod nrs
	rmdir $dir/one/clients/*
	rmdir $dir/*/
	rmdir $top/svc
	rmmod nrs
}

life() {
	service fifo
	mkdir $dir/g
	has g capacity ''
	has g target ''
	has g strategy classes
	has g class ''
	has g min ''
	has g max ''
	has g reserve_mover ''
	mkdir $dir/g/clients/0@lo
	has g/clients/0@lo class ''
	has g/clients/0@lo min ''
	has g/clients/0@lo max ''
	has g/clients/0@lo allocated 0
	put g target 253:7
	put g class ls
	has g class low_share
	put g reserve_first_come 10%
	config
	# Not without a group that is listed.
	put g/clients/0@lo class first_come
	expect_errno ENOENT $dir/g/clients/0@lo/min 1MB
	said 'no such group'
	has g/clients/0@lo min ''
	put g capacity 100MB
	config 'group g capacity=100MB/s target=253:7 class=low_share reserve_first_come=10%'
	has g capacity 100MB/s
	put g/clients/0@lo min 10%
	config 'group g capacity=100MB/s target=253:7 class=low_share reserve_first_come=10%' 'client 0@lo class=first_come min=10% group=g'
	put g/clients/0@lo max 50MB/s
	put g/clients/0@lo class mover
	put g target ''
	put g reserve_first_come ''
	config 'group g capacity=100MB/s class=low_share' 'client 0@lo class=mover min=10% max=50MB/s group=g'
	# What does not fit is refused, and nothing is changed.
	expect_errno EINVAL $dir/g/capacity 49MB
	said 'above the capacity'
	expect_errno EINVAL $dir/g/capacity ''
	said 'capacity is missing'
	expect_errno EINVAL $dir/g/clients/0@lo/min 51MB
	said 'min is above max'
	expect_errno EINVAL $dir/g/clients/0@lo/min ''
	said 'min is missing'
	expect_errno EINVAL $dir/g/clients/0@lo/class ''
	said 'class is missing'
	expect_errno EINVAL $dir/g/strategy mover
	said 'listed clients only'
	config 'group g capacity=100MB/s class=low_share' 'client 0@lo class=mover min=10% max=50MB/s group=g'
	has g capacity 100MB/s
	has g/clients/0@lo min 10%
	put g class ''
	put g strategy mover
	config 'group g capacity=100MB/s strategy=mover' 'client 0@lo class=mover min=10% max=50MB/s group=g'
	said ''
	# It is the same group and the same client, whoever wrote it.
	configure 'group g capacity=200MB/s\ngroup h capacity=1GB/s target=3\nclient 0@lo class=fs min=5MB/s group=g\nclient 0@lo class=fs min=6MB/s\n'
	has g capacity 200MB/s
	has g strategy classes
	has g/clients/0@lo min 5MB/s
	has g/clients/0@lo class fair_share
	has g/clients/0@lo max ''
	mkdir $dir/h
	has h capacity 1GB/s
	has h target 3
	put h max 50%
	mkdir $dir/h/clients/0@lo
	has h/clients/0@lo min ''
	# One client stands before the others, a pattern behind them.
	put h/clients/0@lo min 7MB/s
	put h/clients/0@lo class fs
	mkdir "$dir/h/clients/*@tcp"
	put "h/clients/*@tcp" class ls
	put "h/clients/*@tcp" min 8MB/s
	config 'group g capacity=200MB/s' 'group h capacity=1GB/s target=3 max=50%' 'client 0@lo class=fair_share min=7MB/s group=h' \
		'client 0@lo class=fair_share min=5MB/s group=g' 'client 0@lo class=fair_share min=6MB/s' 'client *@tcp class=low_share min=8MB/s group=h'
	# A text without them makes drafts of them again; the capacity or the minimum lists them again.
	configure 'tune slow=10s\n'
	has g capacity ''
	has h capacity ''
	has h max 50%
	has h/clients/0@lo min ''
	has h/clients/0@lo class fair_share
	expect_errno ENOENT $dir/h/clients/0@lo/min 1MB
	put h capacity 5MB
	put h/clients/0@lo min 1MB
	config 'tune slow=10s' 'group h capacity=5MB/s target=3 max=50%' 'client 0@lo class=fair_share min=1MB/s group=h'
	# What goes, goes from the configuration.
	rmdir $dir/h/clients/0@lo
	config 'tune slow=10s' 'group h capacity=5MB/s target=3 max=50%'
	# With lines for its clients that have no directory.
	configure 'group h capacity=5MB\nclient 7@gni class=fs min=1MB group=h\nclient 8@gni class=fs min=1MB\n'
	rmdir "$dir/h/clients/*@tcp"
	rmdir $dir/h
	config 'client 8@gni class=fair_share min=1MB/s'
	rmdir $dir/g/clients/0@lo $dir/g
	config 'client 8@gni class=fair_share min=1MB/s'
	# The policy may come and go.
	mkdir $dir/g
	put g capacity 1GB
	policy svc qbm
	put g min 5MB
	policy svc fifo
	has g min 5MB/s
	config 'group g capacity=1GB/s min=5MB/s' 'client 8@gni class=fair_share min=1MB/s'
	rmdir $dir/g
}

# What tells clients apart.
told_apart() {
	service
	[ "$(<$dir/by)" = nid ] || fail "by is $(<$dir/by)"
	made g 10MB
	listed g 0@lo fs 1MB
	expect_errno EBUSY $dir/by uid
	said 'told apart'
	expect_errno EINVAL $dir/by gid
	expect_errno EINVAL $dir/by ''
	echo nid >$dir/by
	rmdir $dir/g/clients/0@lo
	echo uid >$dir/by
	refused EINVAL mkdir $dir/g/clients/0@lo
	said 'no uid'
	listed g 1000 fs 1MB
	config 'by uid' 'group g capacity=10MB/s' 'client 1000 class=fair_share min=1MB/s group=g'
	rmdir $dir/g/clients/1000
	echo device >$dir/by
	listed g 'a?' fs 1MB
	rmdir "$dir/g/clients/a?"
	echo jobid >$dir/by
	listed g 'dd.*' fs 1MB
	refused EINVAL mkdir $dir/g/clients/jjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjj
	# A draft of another kind is refused when it is complete.
	mkdir $dir/g/clients/job
	put g/clients/job class fs
	rmdir "$dir/g/clients/dd.*"
	echo uid >$dir/by
	expect_errno EINVAL $dir/g/clients/job/min 1MB
	config 'by uid' 'group g capacity=10MB/s'
}

# all_values: of the group w and its client, and the configuration, in $all; starts no process.
all_values() {
	local file value
	all=
	for file in "$dir"/w/* "$dir"/w/clients/7@gni/* /sys/kernel/debug/nrs/svc/nrs_qbm_config; do
		[ -f "$file" ] || continue
		mapfile -t value <"$file"
		all+="$file: ${value[*]}"$'\n'
	done
}

cat >/tmp/values <<'END'
capacity|x|capacity is not
capacity|-1|capacity is not
capacity|10 MB|capacity is not
capacity|1.5GB|capacity is not
capacity|50%|capacity is not
capacity|2TiB|capacity is not
capacity|5MB min=1MB|capacity is not
capacity|0|below the floor
capacity|31KiB|below the floor
target|sda|target is not
target|8:|target is not
target|8:0:0|target is not
target|-1|target is not
target|4096:0|target is not
target|4294967296|target is not
strategy|fast|strategy is not
strategy|MOVER|strategy is not
class|best|class is not
class|fc fs|class is not
class|FC|class is not
min|x|min is not
min|101%|min is not
min|-5|min is not
max|x|max is not
max|5MB;|max is not
max|\0001|max is not
reserve_first_come|x|reserve is not
reserve_fair_share|101%|reserve is not
reserve_low_share|-1|reserve is not
reserve_mover|1 MB|reserve is not
clients/7@gni/class|best|class is not
clients/7@gni/class|mover mover|class is not
clients/7@gni/min|x|min is not
clients/7@gni/min|1 MB|min is not
clients/7@gni/min|101%|min is not
clients/7@gni/max|x|max is not
clients/7@gni/max|1MB group=g|max is not
clients/7@gni/max|\0001|max is not
END

cat >/tmp/listed <<'END'
min|40KB|min is above max
max|101MB|above the capacity
max|1KB|min is above max
min|1%|below the floor
reserve_mover|91%|reserves together
capacity|900KB|above the capacity
clients/7@gni/min|101%|min is not
clients/7@gni/min|3MB|min is above max
clients/7@gni/max|101MB|above the capacity
clients/7@gni/min|5KB|below the floor
clients/7@gni/class||class is missing
END

# values LISTED: each is refused, tells why, and changes nothing.
values() {
	local file value why all before tried=0 tables=(/tmp/values)
	service
	mkdir $dir/w $dir/w/clients/7@gni
	put w target 5
	put w reserve_first_come 10%
	if [ "$1" = 1 ]; then
		put w capacity 2MB
		put w max 39KB
		put w min 35KB
		put w/clients/7@gni class fs
		put w/clients/7@gni max 1MB
		put w/clients/7@gni min 500KB
		tables+=(/tmp/listed)
	fi
	all_values
	before=$all
	while IFS='|' read -r file value why; do
		# Without a capacity nothing is below or above it.
		tried=$((tried + 1))
		# A third of them on the slow kernel.
		[ -z "$debug" ] || [ $((tried % 3)) = "$1" ] || continue
		printf -v value '%b' "$value"
		expect_errno EINVAL "$dir/w/$file" "$value"
		said "$why"
		all_values
		[ "$all" = "$before" ] || fail "changed by $file=$value: '$before' to '$all'"
	done < <(cat "${tables[@]}")
	# A page is too long for any of them.
	expect_errno EINVAL $dir/w/class "$(printf 'x%.0s' {1..4000})"
	# Nobody but root.
	refused EACCES setpriv --reuid 1000 --regid 1000 --clear-groups cat $dir/w/capacity
	say "$tried tried"
	[ "$tried" -ge 38 ]
}

# Another number of partitions is another service; the directories stand for it.
recreated() {
	service
	made r 10MB
	listed r 0@lo fs 1MB
	local other=1
	[ "$(cat $top/svc/cpts)" != 1 ] || other=2
	echo $other >$top/svc/cpts
	has r strategy classes
	put r capacity 20MB
	put r/clients/0@lo min 2MB
	policy svc qbm
	config 'group r capacity=20MB/s' 'client 0@lo class=fair_share min=2MB/s group=r'
	rmdir $dir/r/clients/0@lo $dir/r
	config
	rmdir $top/svc
}

# rate SECONDS: bytes/s that the service ends, measured over that time, in $got.
rate() {
	local from to before after
	look
	before=0
	for after in "${all_bytes[@]}"; do before=$((before + after)); done
	from=$stamp
	sleep "$1"
	look
	got=0
	for after in "${all_bytes[@]}"; do got=$((got + after)); done
	# After the count, so that a busy host makes it less, not more.
	to=${EPOCHREALTIME/./}
	got=$(((got - before) * 1000 / ((to - from) / 1000)))
}

# In use: what the directories say holds, and changed values do. Rates are what the machine can do without trouble.
regulated() {
	local got all_ended all_bytes all_held stamp kb
	kb=$(slow 100 20)
	service
	lower nb0
	client dev /dev/nb0 svc
	echo device >$dir/by
	made g $((20 * kb))KB/s
	listed g dev fs $((8 * kb))KB/s $((8 * kb))KB/s
	refused EBUSY rmdir $top/svc
	load dev --bs=16k --time_based --runtime=600 >/tmp/load.txt 2>&1 &
	saturated dev
	wait_for 10 "[ \$(<$dir/g/clients/dev/allocated) = $((8000 * kb)) ]" ||
		fail "allocated: $(<$dir/g/clients/dev/allocated) $(cat "$(at svc nrs_qbm_status)")"
	rate 4
	say "$((8 * kb)) KB/s: $got"
	limited_to "$(slow 15 20)" "$got" $((8000 * kb))
	expect_errno EINVAL $dir/g/clients/dev/max $((4 * kb))KB/s
	put g/clients/dev min $((4 * kb))KB/s
	put g/clients/dev max $((4 * kb))KB/s
	has g/clients/dev allocated $((4000 * kb))
	sleep 1
	rate 4
	say "$((4 * kb)) KB/s: $got"
	limited_to "$(slow 15 20)" "$got" $((4000 * kb))
	# Without a line it is like others, with all that there is.
	rmdir $dir/g/clients/dev
	sleep 1
	rate 4
	say "$((20 * kb)) KB/s: $got"
	limited_to "$(slow 15 20)" "$got" $((20000 * kb))
	# Without a group nothing is held back.
	rmdir $dir/g
	sleep 1
	rate 2
	say "free: $got"
	[ "$got" -gt $((25000 * kb)) ] || fail "still limited: $got, $(cat "$(at svc nrs_qbm_status)")"
	kill $(pidof fio)
	wait || true
	dm remove dev
	rmdir $top/svc
}

# churn NAME: makes, lists, changes and removes a group with a client until /tmp/stop is there; others do so at the same
# time.
churn() {
	set +eE
	trap - ERR
	while [ ! -e /tmp/stop ]; do
		mkdir "$dir/$1"
		echo "${#1}" >"$dir/$1/target"
		echo $((RANDOM % 9 + 1))0MB >"$dir/$1/capacity"
		mkdir "$dir/$1/clients/a"
		echo fs >"$dir/$1/clients/a/class"
		echo 5MB >"$dir/$1/clients/a/min"
		echo 10% >"$dir/$1/clients/a/min"
		cat "$dir/$1"/* "$dir/$1/clients/a"/* "$(at svc nrs_qbm_status)" "$(at svc nrs_qbm_config)"
		rmdir "$dir/$1/clients/a"
		rmdir "$dir/$1"
		echo >>"/tmp/rounds-$1"
	done >/dev/null 2>&1
}

# texts: whole configurations.
texts() {
	local text
	set +eE
	trap - ERR
	while [ ! -e /tmp/stop ]; do
		for text in 'by device; group one capacity=50MB' 'by device; group four capacity=1MB; client a class=fc min=1MB' 'by device'; do
			echo "$text" >"$(at svc nrs_qbm_config)"
			sleep 0.05
		done
	done 2>/dev/null
}

# policies: qbm starts and stops.
policies() {
	local policy
	set +eE
	trap - ERR
	while [ ! -e /tmp/stop ]; do
		for policy in fifo qbm 'qbm hp' 'fifo reg' qbm; do
			echo "$policy" >"$(at svc nrs_policies)"
			sleep 0.2
		done
	done 2>/dev/null
}

# services: come and go with a group.
services() {
	while [ ! -e /tmp/stop ]; do
		mkdir $top/short
		mkdir $top/short/qbm/x
		echo 5MB >$top/short/qbm/x/capacity
		rmdir $top/short/qbm/x
		rmdir $top/short
	done
	touch /tmp/services
}

storm() {
	local name least
	service
	lower nb0
	echo device >$dir/by
	client a /dev/nb0 svc
	load a --bs=16k --time_based --runtime=600 >/tmp/load.txt 2>&1 &
	wait_for 20 "[ \$(ended svc) -gt 100 ]" || fail "nothing ends: $(dm status a)"
	rm -f /tmp/stop /tmp/services
	for name in one three; do : >/tmp/rounds-$name && churn $name & done
	texts &
	policies &
	services &
	sleep 8
	least=$(slow 5 2)
	for name in one three; do
		wait_for 60 "[ \$(wc -l </tmp/rounds-$name) -ge $least ]" ||
			{ touch /tmp/stop; fail "$name has done $(wc -l </tmp/rounds-$name) rounds"; }
	done
	touch /tmp/stop
	wait_for 30 "[ -e /tmp/services ]" || fail "a service could not be made or removed"
	kill $(pidof fio)
	wait || true
	say "rounds: $(wc -l /tmp/rounds-* | tr '\n' ' ')"
	# Nothing is left behind, and everything still works.
	for name in one three; do
		[ ! -d $dir/$name/clients/a ] || rmdir $dir/$name/clients/a
		[ ! -d $dir/$name ] || rmdir $dir/$name
	done
	configure 'by device\n'
	policy svc fifo
	policy svc qbm
	made one 50MB
	config 'by device' 'group one capacity=50MB/s'
	rmdir $dir/one
}

# All of it goes: no reference to the module is left.
unloaded() {
	module
	[ "$(cat /sys/module/nrs/refcnt)" = 0 ] || fail "refcnt $(cat /sys/module/nrs/refcnt)"
	rmmod nrs
}

long try 60 "directories of groups and clients, and their names" directories
try 60 "a group and a client from their directories, and by texts" life
long try 40 "what tells clients apart" told_apart
long try 60 "$(wc -l </tmp/values) wrong values of drafts" values 0
long try 90 "$(cat /tmp/values /tmp/listed | wc -l) wrong values of what is listed" values 1
long try 40 "other partitions" recreated
long try 90 "what the directories say holds" regulated
long try 90 "changes from everywhere" storm
long try 20 "unloading" unloaded
summary
