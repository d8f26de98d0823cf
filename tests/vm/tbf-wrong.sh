#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Rules that must be refused: each with its error and the column of what is wrong, and nothing changed.
. /tests/nrs.sh

long=$(printf 'x%.0s' $(seq 4200))

# A device, `tbf uid+jobid+opcode` (or what is given) on both heads, and some rules.
setup() {
	module
	lower nb0
	client a /dev/nb0 svc
	policy svc "${1:-tbf uid+jobid+opcode}"
	set_to svc nrs_tbf_rate 50
	set_to svc nrs_tbf_rule 'start one uid={1001} rate=100'
	set_to svc nrs_tbf_rule 'start two uid={1002} rate=1MiB/s minrate=100KiB/s also=one'
	set_to svc nrs_tbf_rule 'hp start three jobid={a.*} rate=5 borrow=1'
	before=$(settings svc)
}

# Lines ERRNO|COLUMN|COMMAND; what the command has of \n and the like are characters.
rules() {
	setup
	local errno column text file said tried=0 wrong=''
	file=$(at svc nrs_tbf_rule)
	while IFS='|' read -r errno column text; do
		text=${text/MUCH/${long::3000}}
		expect_errno "$errno" "$file" "$(printf '%b' "${text/LONG/$long}")" || wrong+="'$text' accepted or another error; "
		said=$(<"$(at svc nrs_tbf_rule_error)")
		# What is too long, or no text, never gets to be a command.
		[ "$column" != - ] || said='column -: expected '
		case $said in
		"column $column: expected "*) ;;
		*) wrong+="'$text': $said, should be column $column; " ;;
		esac
		unchanged "$text"
		tried=$((tried + 1))
	done </tmp/rules
	say "$tried tried"
	[ -z "$wrong" ] || fail "$wrong"
	# Two commands in one write; none of both.
	printf 'start x uid={5}\nstop one\n' >/tmp/two
	refused EINVAL dd if=/tmp/two of="$file" bs=4k conv=notrunc
	unchanged "two commands"
	# A refused write is told once in the log, what is taken empties the file.
	dmesg | grep -q 'nrs: service svc: rule refused, column'
	set_to svc nrs_tbf_rule 'stop nosuch'
	[ -z "$(<"$(at svc nrs_tbf_rule_error)")" ]
}

# Lines ERRNO|FILE|VALUE
parameters() {
	setup 'tbf jobid+uid+opcode'
	local errno file text tried=0
	while IFS='|' read -r errno file text; do
		expect_errno "$errno" "$(at svc "$file")" "$text"
		unchanged "$file=$text"
		tried=$((tried + 1))
	done </tmp/parameters
	say "$tried tried"
}

# Lines ERRNO|WORDS for dm message
messages() {
	setup
	local errno words
	while IFS='|' read -r errno words; do
		# shellcheck disable=SC2086
		refused "$errno" dm message a 0 service nrs_tbf_rule $words
		unchanged "message $words"
	done </tmp/messages
	refused EACCES dm message a 0 service nrs_tbf_stats x
	refused EACCES dm message a 0 service nrs_tbf_rule_error x
}

cat >/tmp/rules <<'END'
EINVAL|1|
EINVAL|1|begin r uid={1} rate=1
EINVAL|1|START r uid={1} rate=1
EINVAL|6|start
EINVAL|6|start 
EINVAL|8|start r
EINVAL|9|start r rate=5
EINVAL|7|start a-b uid={1} rate=1
EINVAL|7|start uid={1} rate=1
ENAMETOOLONG|7|start sixteen_letters_ uid={1} rate=1
ENAMETOOLONG|6|stop sixteen_letters_
ENAMETOOLONG|8|change sixteen_letters_ rate=1
EINVAL|7|start !@#$%^&*()-+={}[]:;,.<>?/~ uid={1} rate=1
ENAMETOOLONG|7|start MUCH uid={1}
E2BIG|-|start LONG uid={1}
EINVAL|9|start r size={1} rate=1
EINVAL|9|start r nid={10.0.0.1@tcp} rate=1
EINVAL|9|start r gid={1} rate=1
EINVAL|9|start r {1001} rate=1
EINVAL|14|start r uid={} rate=1
EINVAL|15|start r uid={ } rate=1
EINVAL|14|start r uid={-1} rate=1
EINVAL|14|start r uid={4294967296} rate=1
EINVAL|16|start r uid={1 x} rate=1
EINVAL|14|start r uid={1,2} rate=1
EINVAL|16|start r uid={1 rate=1
EINVAL|13|start r uid=1 rate=1
EINVAL|13|start r uid 1 rate=1
EINVAL|17|start r uid={1}&
EINVAL|18|start r uid={1}, rate=1
EINVAL|16|start r uid={1}rate=1
EINVAL|17|start r uid={1}&&uid={2} rate=1
EINVAL|17|start r opcode={ost_reed} rate=1
EINVAL|17|start r opcode={5} rate=1
EINVAL|22|start r uid={1} rate=0
EINVAL|22|start r uid={1} rate=10000001
EINVAL|22|start r uid={1} rate=-5
EINVAL|22|start r uid={1} rate=1.5
EINVAL|22|start r uid={1} rate=0x10
EINVAL|22|start r uid={1} rate=5mb/s
EINVAL|22|start r uid={1} rate=1025GiB/s
EINVAL|22|start r uid={1} rate=
EINVAL|17|start r uid={1} rates=5
EINVAL|17|start r uid={1} word
EINVAL|24|start r uid={1} rate=5 = 7
EINVAL|32|start r uid={1} rate=5 minrate=6
EINVAL|32|start r uid={1} rate=5 minrate=1KB/s
EINVAL|26|start r uid={1} realtime=yes
EINVAL|24|start r uid={1} borrow=2
EINVAL|34|start r uid={1} also=one+two+one+two
ENOENT|22|start r uid={1} also=nosuch
ENOENT|22|start r uid={1} rank=nosuch
EINVAL|22|start r uid={1} rank=sixteen_letters_
EEXIST|7|start one uid={1} rate=1
EEXIST|11|reg start one uid={1} rate=1
EEXIST|7|start default uid={1} rate=1
EEXIST|7|start three uid={1} rate=1
EINVAL|4|reg
EINVAL|5|reg hp stop one
EINVAL|11|change one
EINVAL|17|change one rate=x
EINVAL|12|change one uid={5}
EINVAL|17|change one also=one
EINVAL|17|change two rate=5
ENOENT|8|change nosuch rate=5
ENOENT|8|change three rate=5
ENOENT|17|change one rank=nosuch
ENOENT|24|change one rate=7 rank=nosuch
EPERM|6|stop default
EBUSY|6|stop one
EINVAL|10|stop two rate=5
EINVAL|10|stop two one
EINVAL|5|stop
EINVAL|5|stop\0001one
EINVAL|-|start r \0377={1} rate=1
E2BIG|-|LONG
END

cat >/tmp/parameters <<'END'
ENOENT|nrs_policies|abc
EINVAL|nrs_policies|tbf abc
EINVAL|nrs_policies|tbf reg abc
EINVAL|nrs_policies|tbf abc efg
EINVAL|nrs_policies|tbf UID
EINVAL|nrs_policies|tbf +uid
EINVAL|nrs_policies|tbf uid+
EINVAL|nrs_policies|tbf uid++gid
EINVAL|nrs_policies|tbf uid gid
EINVAL|nrs_policies|tbf uid,gid
EINVAL|nrs_policies|tbf hp uid+nosuch
EINVAL|nrs_tbf_rate|0
EINVAL|nrs_tbf_rate|10000001
EINVAL|nrs_tbf_rate|-1
EINVAL|nrs_tbf_rate|5MB/s
EINVAL|nrs_tbf_rate|
EINVAL|nrs_tbf_depth|0
EINVAL|nrs_tbf_depth|1000001
EINVAL|nrs_tbf_depth|x
EINVAL|nrs_tbf_cost_model|bytes
EINVAL|nrs_tbf_cost_model|
EINVAL|nrs_tbf_global_rate|2
EINVAL|nrs_tbf_global_rate|on
EINVAL|nrs_tbf_stats|1
EINVAL|nrs_tbf_rule_error|1
END

cat >/tmp/messages <<'END'
EINVAL|start
EINVAL|start r uid={ rate=5
EEXIST|start one uid={1}
ENOENT|change nosuch rate=5
EPERM|stop default
EBUSY|stop one
END

long try 60 "$(wc -l </tmp/rules) wrong rules" rules
long try 30 "$(wc -l </tmp/parameters) wrong parameters" parameters
long try 30 "wrong rules by message" messages
summary
