#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Refused input: each with its error, and no change. The host's tests have all values; here the
# errno has to reach the user. No other test covers the words of a table.
. /tests/nrs.sh

size=2048
dir=/sys/kernel/config/nrs
long=$(printf 'x%.0s' $(seq 1100))

# state: Prints all visible state of the module.
state() {
	local file files=()
	for file in /sys/kernel/debug/nrs/*/* /sys/module/nrs/parameters/* $dir/*/*; do
		# Write-only files have no contents, the reason of a refusal changes with each refusal, and
		# times advance.
		case $file in
		*stats_reset | *rule_error | *config_error | *timeouts | *qbm_stat*) continue ;;
		esac
		[ ! -f "$file" ] || files+=("$file")
	done
	# One process for all files; an unreadable file (rules without tbf) has no output.
	grep -sH '' "${files[@]}" || true
	dm table
	dm status
	ls /sys/kernel/debug/nrs $dir
}

# same_state WHAT: Verifies that the state equals that of the start.
same_state() {
	state >/tmp/after
	cmp -s /tmp/before /tmp/after || fail "changed by $1: $(diff /tmp/before /tmp/after)"
}

# Verifies lines FILE|VALUE|ERRNO[|REASON]; escapes such as \n in a value are expanded. If the file
# has an error file, its text must begin with REASON.
writes() {
	local file value errno reason path said
	while IFS='|' read -r file value errno reason; do
		path=$(at svc "$file")
		[ -e "$path" ] || fail "no $path"
		expect_errno "$errno" "$path" "$(printf '%b' "${value/LONG/$long}")"
		same_state "$file=$value"
		if [ -n "$reason" ]; then
			said=$(<"${path/_config/_config_error}")
			[[ $said == "$reason"* ]] ||
				fail "$file = '$value' is refused because '$said', not '$reason'"
		fi
		tried=$((tried + 1))
	done
}

# Verifies lines WORDS|ERRNO, where WORDS are those of dm message.
messages() {
	local words errno
	while IFS='|' read -r words errno; do
		# shellcheck disable=SC2086
		refused "$errno" dm message a 0 $words
		same_state "message $words"
		tried=$((tried + 1))
	done
}

# Verifies lines ERRNO|REASON|WORDS: REASON is the pattern in the kernel log, and WORDS follow
# "START LEN nrs ".
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

# all POLICY FUNCTION FILE: Runs the lines of FILE on a service with settings unlike the defaults, a
# plan, and rules if the policy is tbf.
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
	local text='by uid;tune slow=10s;group all capacity=10MB/s reserve_first_come=10%'
	set_to svc nrs_qbm_config "$text;client 1001 class=first_come min=2MB/s"
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
nrs_tbf_rule|change default rate=5|ENODEV
nrs_fairshare_weights|uid:1:2 uid:2:0|EINVAL
nrs_owners|/a=1:2 /=1:2|EINVAL
nrs_owners|-/a|ENOENT
nrs_fairshare_delta_ms|9|EINVAL
nrs_delay_min|reg_delay_min:4 hp_delay_min:301|EINVAL
slots|65536|EINVAL
nrs_fairshare_stats|x|EINVAL
nrs_qbm_status|1|EINVAL
nrs_qbm_config|nonsense|EINVAL|line 1: column 1: expected by, tune
nrs_qbm_config|group LONGGROUP capacity=1MB|ENAMETOOLONG|line 1:
nrs_qbm_config|group a capacity=1MB target=8:1\ngroup b capacity=1MB target=8:1|EEXIST|line 2:
nrs_qbm_config|client 0@lo class=fc min=1MB group=a|ENOENT|line 1:
END
sed -i "s/LONGGROUP/$(printf 'a%.0s' {1..64})/" /tmp/writes

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
EINVAL|[Aa]rguments missing|/dev/nb1 0
EINVAL|OFFSET:|/dev/nb1 -1 svc
EINVAL|OFFSET:|/dev/nb1 99999999999999999999 svc
EINVAL|too small|/dev/nb1 1000000 svc
ENOENT|nrs: |/dev/nosuch 0 svc
EINVAL|SERVICE:|/dev/nb1 0 a/b
EINVAL|SERVICE:|/dev/nb1 0 LONGNAME
EINVAL|COUNT:|/dev/nb1 0 svc 1
EINVAL|COUNT:|/dev/nb1 0 svc nid 10.0.0.1@tcp
EINVAL|nid:|/dev/nb1 0 svc 1 nid
EINVAL|nid:|/dev/nb1 0 svc 2 nid 10.0.0.256@tcp
EINVAL|nid:|/dev/nb1 0 svc 4 nid 10.0.0.1@tcp nid 10.0.0.2@tcp
EINVAL|jobid:|/dev/nb1 0 svc 2 jobid xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
EINVAL|jobid_name:|/dev/nb1 0 svc 2 jobid_name %z
EINVAL|size:|/dev/nb1 0 svc 2 size 0
EINVAL|size:|/dev/nb1 0 svc 2 size 18446744073709551617
EINVAL|opportunity:|/dev/nb1 0 svc 2 opportunity yes
EINVAL|nknown argument|/dev/nb1 0 svc 2 nosuch 1
EINVAL|on_timeout:|/dev/nb1 0 svc 2 on_timeout never
ELOOP|client of the same service|/dev/mapper/a 0 svc
EINVAL|zoned|/dev/zoned 0 svc
END
sed -i "s/LONGNAME/$long/" /tmp/tables

# Verifies wrong values in configfs, and two commands in one write.
elsewhere() {
	module
	lower nb0
	client a /dev/nb0 svc
	policy svc 'tbf uid'
	mkdir $dir/made
	state >/tmp/before
	local value
	for value in 0 65 -1 x ''; do
		expect_errno EINVAL $dir/made/cpts "$value" && same_state "cpts=$value"
	done
	for value in 0 65536 -1 x ''; do
		expect_errno EINVAL $dir/made/slots "$value" && same_state "slots=$value"
	done
	expect_errno EACCES $dir/made/state 1 || expect_errno EPERM $dir/made/state 1
	printf 'fairshare\nfifo\n' >/tmp/two
	refused EINVAL dd if=/tmp/two of="$(at svc nrs_policies)" bs=4k conv=notrunc
	printf 'start x uid={5}\nstop x\n' >/tmp/two
	refused EINVAL dd if=/tmp/two of="$(at svc nrs_tbf_rule)" bs=4k conv=notrunc
	same_state "configfs"
	# A refused write is logged once; an accepted write empties the error file.
	dmesg | grep -q 'nrs: service svc: refused: column' || fail "$(dmesg | tail -n 5)"
	set_to svc nrs_tbf_rule 'stop nosuch'
	[ -z "$(<"$(at svc nrs_tbf_rule_error)")" ]
}

# plan [BYTES]: Writes /tmp/plan as the configuration, in pieces of that size; errors go to
# /tmp/said.
plan() {
	dd if=/tmp/plan of="$(at svc nrs_qbm_config)" bs="${1:-512k}" conv=notrunc 2>/tmp/said
}

# refuses_plan WORDS: Verifies that the last configuration was refused for that reason, and that the
# first one is in effect.
refuses_plan() {
	[[ $(<"$(at svc nrs_qbm_config_error)") == "$1" ]] ||
		fail "$(<"$(at svc nrs_qbm_config_error)"), not $1"
	unchanged "$1"
}

# Verifies configurations that are written in pieces, have the largest size, or are checked without
# qbm.
plans() {
	module
	lower nb0
	client a /dev/nb0 svc
	policy svc qbm
	set_to svc nrs_qbm_config \
		'by uid;group all capacity=10MB/s;client 1001 class=first_come min=2MB/s'
	local i before
	before=$(settings svc)
	printf 'by uid\nclient 7 class=fs min=1MB\ngroup\nclient 8 class=fs min=1MB\n' >/tmp/plan
	if plan 5; then fail "wrong pieces were accepted"; fi
	refuses_plan "line 3: the group's name is missing"
	# A last line without line end counts when the file is closed, and only the error file reports
	# its error.
	printf 'by uid\ngroup' >/tmp/plan
	plan || true
	refuses_plan "line 2: the group's name is missing"
	# The largest number of clients is accepted, and shown as written.
	{
		echo by uid &&
			for ((i = 0; i < 4096; i++)); do echo "client $i class=fair_share min=1MB/s"; done
	} >/tmp/plan
	plan || fail "$(cat /tmp/said)"
	cmp /tmp/plan "$(at svc nrs_qbm_config)" || fail "not what was written"
	[ -z "$(<"$(at svc nrs_qbm_config_error)")" ] || fail "the error remains"
	# Without qbm there is no status, but the configuration exists and is checked.
	policy svc fifo
	refused ENODEV cat "$(at svc nrs_qbm_status)"
	refused ENODEV cat "$(at svc nrs_qbm_stats)"
	expect_errno EINVAL "$(at svc nrs_qbm_config)" 'by uid;group all'
	cmp /tmp/plan "$(at svc nrs_qbm_config)" || fail "not kept after the policy"
}

try 120 "$(wc -l </tmp/writes) wrong writes" all 'fairshare gid_then_size_fair' writes /tmp/writes
try 80 "$(wc -l </tmp/messages) wrong messages" all 'tbf uid+jobid+opcode' messages /tmp/messages
try 120 "$(wc -l </tmp/tables) wrong tables" all 'fairshare gid_then_size_fair' tables /tmp/tables
long try 120 "wrong values in configfs, two commands in one write" elsewhere
long try 60 "configurations of qbm: pieces, sizes, without the policy" plans
summary
