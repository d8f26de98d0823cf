#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# What must be refused: each with its error, and nothing changed. The host's tests have all values; here the errno has to reach the
# user. The words of a table have no other test.
. /tests/nrs.sh

size=2048
dir=/sys/kernel/config/nrs
long=$(printf 'x%.0s' $(seq 1100))
longer=$(printf 'x%.0s' $(seq 4200))

# state: all that can be seen of the module.
state() {
	local file files=()
	for file in /sys/kernel/debug/nrs/*/* /sys/module/nrs/parameters/* $dir/*/*; do
		# What only takes writes has nothing to show; why a rule or a configuration was refused changes with each, and times go by.
		case $file in *stats_reset | *rule_error | *config_error | *timeouts | *qbm_stat*) continue ;; esac
		[ ! -f "$file" ] || files+=("$file")
	done
	# One process for all of them; what cannot be read now (rules without tbf) shows nothing.
	grep -sH '' "${files[@]}" || true
	dm table
	dm status
	ls /sys/kernel/debug/nrs $dir
}

# same_state WHAT: the state is that of the start.
same_state() {
	state >/tmp/after
	cmp -s /tmp/before /tmp/after || fail "changed by $1: $(diff /tmp/before /tmp/after)"
}

# Lines FILE|VALUE|ERRNO[|REASON]; in a value, \n and the like are characters. Where there is a file for it, the reason begins like this.
writes() {
	local file value errno reason path said
	while IFS='|' read -r file value errno reason; do
		path=$(at svc "$file")
		[ -e "$path" ] || fail "no $path"
		value=${value/LONGER/$longer}
		expect_errno "$errno" "$path" "$(printf '%b' "${value/LONG/$long}")"
		same_state "$file=$value"
		if [ -n "$reason" ]; then
			said=$(<"${path/_config/_config_error}")
			[ "$file" != nrs_tbf_rule ] || said=$(<"${path}_error")
			[[ $said == "$reason"* ]] || fail "$file = '$value' is refused because '$said', not '$reason'"
		fi
		tried=$((tried + 1))
	done
}

# Lines of words for dm message|ERRNO
messages() {
	local words errno
	while IFS='|' read -r words errno; do
		# shellcheck disable=SC2086
		refused "$errno" dm message a 0 $words
		same_state "message $words"
		tried=$((tried + 1))
	done
}

# Lines ERRNO|what the kernel's log gives as the reason|what follows "START LEN nrs "
tables() {
	local errno reason words
	while IFS='|' read -r errno reason words; do
		echo "wrong table $tried" >/dev/kmsg
		refused "$errno" dm create wrong --table "0 $size nrs $(printf '%b' "$words")"
		dmesg | sed "1,/wrong table $tried\$/d" >/tmp/said
		grep -qE "$reason" /tmp/said || fail "'$words': no '$reason' in the log: $(cat /tmp/said)"
		[ "$(devices | grep -c wrong)" = 0 ] || fail "'$words' left a device"
		same_state "table $words"
		tried=$((tried + 1))
	done
}

# all POLICY FUNCTION FILE: with a service that has settings unlike the defaults, rules if it is tbf, and a plan.
all() {
	module
	lower nb0
	lower nb1
	lower zoned zoned=1 zone_size=4
	client a /dev/nb0 svc
	mkdir $dir/made
	set_to svc nrs_fairshare_delta_ms 70
	set_to svc nrs_fairshare_select paper
	set_to svc nrs_fairshare_weights 'uid:1001:2,-uid:1001,gid:7:3,jobid:a*:4'
	set_to svc nrs_fairshare_size_window_s 20
	set_to svc slots 9
	set_to svc high_priority_ratio 4
	set_to svc nrs_qbm_config 'by uid;tune slow=10s;group all capacity=10MB/s reserve_first_come=10%;client 1001 class=first_come min=2MB/s'
	policy svc "$1"
	wait_for 10 "! grep -q 'state: stopping' $(at svc nrs_policies)"
	if [[ $1 == tbf* ]]; then
		set_to svc nrs_tbf_rate 50
		set_to svc nrs_tbf_rule 'start one uid={1001} rate=100'
		set_to svc nrs_tbf_rule 'start two uid={1002} rate=1MiB/s minrate=100KiB/s also=one'
		set_to svc nrs_tbf_rule 'hp start three jobid={a.*} rate=5 borrow=1'
	fi
	state >/tmp/before
	tried=0
	"$2" <"$3"
	say "$tried tried"
	[ "$tried" -ge 10 ]
}

cat >/tmp/writes <<'END'
nrs_policies||EINVAL
nrs_policies|nosuch|ENOENT
nrs_policies|fairshare uid_then_uid_fair|EINVAL
nrs_policies|LONG|EINVAL
nrs_policies|fairshare \0377\0376|EINVAL
nrs_policies|qbm nid|EINVAL
nrs_tbf_rule|change default rate=5|ENODEV
nrs_fairshare_mode|uid_fair weight=uid:1:2,uid:2:10001|EINVAL
nrs_fairshare_mode|uid_fair weight=-uid:77|ENOENT
nrs_fairshare_weights|uid:1:2 uid:2:0|EINVAL
nrs_fairshare_weights|clear,-gid:7|ENOENT
nrs_fairshare_delta_ms|9|EINVAL
nrs_fairshare_select|golden|EINVAL
nrs_delay_min|reg_delay_min:4 hp_delay_min:301|EINVAL
nrs_orr_quantum|reg_quantum:5 reg_quantum:6|EINVAL
at_min|601|EINVAL
slots|65536|EINVAL
nrs_fairshare_stats|x|EINVAL
nrs_qbm_clients_max|15|EINVAL
nrs_qbm_status|1|EINVAL
nrs_qbm_config|nonsense|EINVAL|line 1: column 1: expected by, tune
nrs_qbm_config|tune fast=100ms\ntune period=200ms|EINVAL|line 2:
nrs_qbm_config|group aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa capacity=1MB|ENAMETOOLONG|line 1:
nrs_qbm_config|group a capacity=1MB target=8:1\ngroup b capacity=1MB target=8:1|EEXIST|line 2:
nrs_qbm_config|client 0@lo class=fc min=1MB group=a|ENOENT|line 1:
END

cat >/tmp/rules <<'END'
nrs_policies|tbf uid++gid|EINVAL
nrs_tbf_rate|0|EINVAL
nrs_tbf_rule|start r|EINVAL|column 8: expected
nrs_tbf_rule|start sixteen_letters_ uid={1} rate=1|ENAMETOOLONG|column 7: expected
nrs_tbf_rule|start LONGER uid={1}|E2BIG
nrs_tbf_rule|start r uid={1 x} rate=1|EINVAL|column 16: expected
nrs_tbf_rule|start r uid={1} also=nosuch|ENOENT|column 22: expected
nrs_tbf_rule|start three uid={1} rate=1|EEXIST|column 7: expected
nrs_tbf_rule|change three rate=5|ENOENT|column 8: expected
nrs_tbf_rule|change one rate=7 rank=nosuch|ENOENT|column 24: expected
nrs_tbf_rule|stop default|EPERM|column 6: expected
nrs_tbf_rule|stop one|EBUSY|column 6: expected
nrs_tbf_rule|start r \0377={1} rate=1|EINVAL
nrs_tbf_rule_error|1|EINVAL
END

cat >/tmp/messages <<'END'
nosuch|EINVAL
drain now|EINVAL
service|EINVAL
service nosuch|ENOENT
service ../a/slots 5|ENOENT
service slots 5 6|EINVAL
service nrs_policies nosuch|ENOENT
service nrs_tbf_rule start r uid={ rate=5|EINVAL
service nrs_tbf_rule start one uid={1}|EEXIST
service nrs_tbf_rule stop default|EPERM
service nrs_qbm_config by uid; group all|EINVAL
service nrs_fairshare_stats 1|EACCES
service nrs_fairshare_stats_reset|EACCES
END

cat >/tmp/tables <<'END'
EINVAL|[Aa]rguments missing|
EINVAL|[Aa]rguments missing|/dev/nb1
EINVAL|[Aa]rguments missing|/dev/nb1 0
EINVAL|OFFSET:|/dev/nb1 x svc
EINVAL|OFFSET:|/dev/nb1 -1 svc
EINVAL|OFFSET:|/dev/nb1 +1 svc
EINVAL|OFFSET:|/dev/nb1 1.5 svc
EINVAL|OFFSET:|/dev/nb1 18446744073709551615 svc
EINVAL|OFFSET:|/dev/nb1 99999999999999999999 svc
EINVAL|too small|/dev/nb1 1000000 svc
ENOENT|nrs: |/dev/nosuch 0 svc
EINVAL|SERVICE:|/dev/nb1 0 .svc
EINVAL|SERVICE:|/dev/nb1 0 a/b
EINVAL|SERVICE:|/dev/nb1 0 a"b
EINVAL|SERVICE:|/dev/nb1 0 xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
EINVAL|SERVICE:|/dev/nb1 0 LONGNAME
EINVAL|COUNT:|/dev/nb1 0 svc x
EINVAL|COUNT:|/dev/nb1 0 svc -1
EINVAL|COUNT:|/dev/nb1 0 svc 1
EINVAL|COUNT:|/dev/nb1 0 svc 0 nid
EINVAL|COUNT:|/dev/nb1 0 svc 2 nid
EINVAL|COUNT:|/dev/nb1 0 svc nid 10.0.0.1@tcp
EINVAL|COUNT:|/dev/nb1 0 svc 99999999999999999999
EINVAL|nid:|/dev/nb1 0 svc 1 nid
EINVAL|nid:|/dev/nb1 0 svc 2 nid 10.0.0.1
EINVAL|nid:|/dev/nb1 0 svc 2 nid 10.0.0.256@tcp
EINVAL|nid:|/dev/nb1 0 svc 4 nid 10.0.0.1@tcp nid 10.0.0.2@tcp
EINVAL|jobid:|/dev/nb1 0 svc 1 jobid
EINVAL|jobid:|/dev/nb1 0 svc 2 jobid xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
EINVAL|jobid:|/dev/nb1 0 svc 4 jobid a jobid b
EINVAL|jobid_name:|/dev/nb1 0 svc 2 jobid_name %z
EINVAL|jobid_name:|/dev/nb1 0 svc 2 jobid_name xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
EINVAL|size:|/dev/nb1 0 svc 1 size
EINVAL|size:|/dev/nb1 0 svc 2 size 0
EINVAL|size:|/dev/nb1 0 svc 2 size 4097
EINVAL|size:|/dev/nb1 0 svc 2 size 18446744073709551617
EINVAL|size:|/dev/nb1 0 svc 4 size 1 size 1
EINVAL|opportunity:|/dev/nb1 0 svc 1 opportunity
EINVAL|opportunity:|/dev/nb1 0 svc 2 opportunity yes
EINVAL|opportunity:|/dev/nb1 0 svc 4 opportunity on opportunity off
EINVAL|nknown argument|/dev/nb1 0 svc 2 nosuch 1
EINVAL|nknown argument|/dev/nb1 0 svc 4 nid 10.0.0.1@tcp NID 10.0.0.1@tcp
EINVAL|on_timeout:|/dev/nb1 0 svc 2 on_timeout never
EINVAL|on_timeout:|/dev/nb1 0 svc 1 on_timeout
ELOOP|client of the same service|/dev/mapper/a 0 svc
EINVAL|zoned|/dev/zoned 0 svc
END
sed -i "s/LONGNAME/$long/" /tmp/tables

# What is made in configfs or given to the module as a whole; two commands in one write.
elsewhere() {
	module
	lower nb0
	client a /dev/nb0 svc
	policy svc 'tbf uid'
	mkdir $dir/made
	state >/tmp/before
	local value
	for value in 0 65 -1 x ''; do expect_errno EINVAL $dir/made/cpts "$value" && same_state "cpts=$value"; done
	for value in 0 65536 -1 x ''; do expect_errno EINVAL $dir/made/slots "$value" && same_state "slots=$value"; done
	expect_errno EACCES $dir/made/state 1 || expect_errno EPERM $dir/made/state 1
	refused EEXIST mkdir $dir/svc
	refused EEXIST mkdir $dir/made
	refused EINVAL mkdir "$dir/a b"
	for value in 0 65536 x; do expect_errno EINVAL /sys/module/nrs/parameters/default_slots "$value"; done
	printf 'fairshare\nfifo\n' >/tmp/two
	refused EINVAL dd if=/tmp/two of="$(at svc nrs_policies)" bs=4k conv=notrunc
	printf 'start x uid={5}\nstop x\n' >/tmp/two
	refused EINVAL dd if=/tmp/two of="$(at svc nrs_tbf_rule)" bs=4k conv=notrunc
	same_state "configfs"
	# A refused write is told once in the log; what is taken empties the file.
	dmesg | grep -q 'nrs: service svc: refused: column' || fail "$(dmesg | tail -n 5)"
	set_to svc nrs_tbf_rule 'stop nosuch'
	[ -z "$(<"$(at svc nrs_tbf_rule_error)")" ]
}

# plan [BYTES]: writes /tmp/plan as the configuration, in pieces of that size; what is said goes to /tmp/said.
plan() {
	dd if=/tmp/plan of="$(at svc nrs_qbm_config)" bs="${1:-512k}" conv=notrunc 2>/tmp/said
}

# refuses_plan WORDS: the last configuration was refused because of that, and the first one is in effect.
refuses_plan() {
	[[ $(<"$(at svc nrs_qbm_config_error)") == "$1" ]] || fail "$(<"$(at svc nrs_qbm_config_error)"), not $1"
	unchanged "$1"
}

# Configurations are written in pieces, are as long as they may be, and are checked without qbm as well.
plans() {
	module
	lower nb0
	client a /dev/nb0 svc
	policy svc qbm
	set_to svc nrs_qbm_config 'by uid;group all capacity=10MB/s;client 1001 class=first_come min=2MB/s'
	local i before
	before=$(settings svc)
	printf 'by uid\nclient 7 class=fs min=1MB\ngroup\nclient 8 class=fs min=1MB\n' >/tmp/plan
	if plan 5; then fail "wrong pieces are taken"; fi
	refuses_plan "line 3: the group's name is missing"
	# Without its line end the last line counts when the file is closed, and nobody but the file tells.
	printf 'by uid\ngroup' >/tmp/plan
	plan || true
	refuses_plan "line 2: the group's name is missing"
	for ((i = 0; i < 65; i++)); do echo "group g$i capacity=1MB target=$i"; done >/tmp/plan
	if plan; then fail "65 groups are taken"; fi
	grep -q 'No space left' /tmp/said
	refuses_plan 'line 65: there are 64 groups already'
	head -c 262145 /dev/zero | tr '\0' '\n' >/tmp/plan
	if plan; then fail "too long a text is taken"; fi
	grep -q 'Argument list too long' /tmp/said
	unchanged "a long text"
	# As many clients as there can be are taken, and shown as they were written.
	{ echo by uid && for ((i = 0; i < 4096; i++)); do echo "client $i class=fair_share min=1MB/s"; done; } >/tmp/plan
	plan || fail "$(cat /tmp/said)"
	cmp /tmp/plan "$(at svc nrs_qbm_config)" || fail "not what was written"
	[ -z "$(<"$(at svc nrs_qbm_config_error)")" ] || fail "the error stays"
	# Nothing to see without qbm, but the configuration is there, and checked.
	policy svc fifo
	refused ENODEV cat "$(at svc nrs_qbm_status)"
	refused ENODEV cat "$(at svc nrs_qbm_stats)"
	expect_errno EINVAL "$(at svc nrs_qbm_config)" 'by uid;group all'
	cmp /tmp/plan "$(at svc nrs_qbm_config)" || fail "gone with the policy"
}

# More weights than there is room for: those that fit are taken, one more is not.
too_many() {
	module
	lower nb0
	client a /dev/nb0 svc
	local file i j list
	file=$(at svc nrs_fairshare_weights)
	for ((i = 0; i < 64; i++)); do
		list=
		for ((j = 0; j < 64; j++)); do list+=" uid:$((i * 64 + j)):2"; done
		echo "$list" >"$file"
	done
	[ "$(wc -l <"$file")" = 4096 ]
	expect_errno ENOSPC "$file" uid:4096:2
	expect_errno ENOSPC "$file" 'uid:1:7 jobid:a*:2'
	[ "$(wc -l <"$file")" = 4096 ]
	if grep -q ':7$' "$file"; then fail "$(tail -n 3 "$file")"; fi
	echo '-uid:0 uid:4096:7' >"$file"
	[ "$(wc -l <"$file")" = 4096 ]
	grep -qx uid:4096:7 "$file"
	if grep -qx uid:0:2 "$file"; then fail "$(tail -n 3 "$file")"; fi
}

[ -n "${NRS_LONG:-}" ] || { awk 'NR % 4 == 1' /tmp/tables >/tmp/some && mv /tmp/some /tmp/tables; }
try 120 "$(wc -l </tmp/writes) wrong writes" all 'fairshare gid_then_size_fair' writes /tmp/writes
long try 60 "$(wc -l </tmp/rules) wrong rules" all 'tbf uid+jobid+opcode' writes /tmp/rules
try 80 "$(wc -l </tmp/messages) wrong messages" all 'tbf uid+jobid+opcode' messages /tmp/messages
try 120 "$(wc -l </tmp/tables) wrong tables" all 'fairshare gid_then_size_fair' tables /tmp/tables
long try 60 "too many weights" too_many
long try 120 "wrong values in configfs, two commands in one write" elsewhere
long try 60 "configurations of qbm: pieces, sizes, without the policy" plans
summary
