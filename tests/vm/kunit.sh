#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# usage: kunit.sh: runs the module's KUnit suites, which start when it is loaded; /suites contains
# their names, one per line.
. /tests/nrs.sh

if [ -d /sys/module/nrs ]; then rmmod nrs; fi
# Other tests disable the suites.
if [ "$(cat $suites)" = none ]; then echo '*' >$suites; fi
echo "kunit starts" >/dev/kmsg
check "the module loads" insmod "${NRS_KO:-/nrs.ko}"
dmesg | sed '1,/kunit starts/d' | sed 's/^\[[ 0-9.]*\] //' | tee /tmp/kunit.txt >/out/kunit.txt
while read -r suite; do
	# The result line of a suite is not indented, "ok 3 nrs_name"; the lines of its tests are.
	if grep -qE "^ok [0-9]+ $suite\$" /tmp/kunit.txt; then
		ok "suite $suite: $(
			sed -n "/# Subtest: $suite\$/,/^[a-z ]*ok [0-9]* $suite/p" /tmp/kunit.txt |
				grep -cE '^ +ok [0-9]+ [a-z]'
		) tests"
	else
		not_ok "suite $suite" \
			"$(grep -E "not ok .*$suite|# Subtest: $suite|EXPECTATION|ASSERTION" /tmp/kunit.txt |
				tr '\n' ' ')"
	fi
done </suites
check_eq "no test failed" '' "$(grep -E '(^| )not ok ' /tmp/kunit.txt)"
check "the module unloads" rmmod nrs
summary
