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
	dmesg | grep -q 'nrs: service svc: refused: column'
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
EINVAL|8|start r
ENAMETOOLONG|7|start sixteen_letters_ uid={1} rate=1
E2BIG|-|start LONG uid={1}
EINVAL|9|start r gid={1} rate=1
EINVAL|16|start r uid={1 x} rate=1
EINVAL|22|start r uid={1} rate=0
EINVAL|32|start r uid={1} rate=5 minrate=6
ENOENT|22|start r uid={1} also=nosuch
EEXIST|7|start three uid={1} rate=1
EINVAL|11|change one
ENOENT|8|change three rate=5
ENOENT|24|change one rate=7 rank=nosuch
EPERM|6|stop default
EBUSY|6|stop one
EINVAL|5|stop\0001one
EINVAL|-|start r \0377={1} rate=1
END

cat >/tmp/parameters <<'END'
ENOENT|nrs_policies|abc
EINVAL|nrs_policies|tbf reg abc
EINVAL|nrs_policies|tbf uid++gid
EINVAL|nrs_policies|tbf hp uid+nosuch
EINVAL|nrs_tbf_rate|0
EINVAL|nrs_tbf_rate|5MB/s
EINVAL|nrs_tbf_depth|1000001
EINVAL|nrs_tbf_cost_model|bytes
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
