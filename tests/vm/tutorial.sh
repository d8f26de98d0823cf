#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The commands of the tutorial and of how-tos as written, each page in one shell:
# /tutorial/PAGE/NN.sh, with the expected output in NN.expect, an extended regular expression per
# line, and a condition to wait for before the next block in NN.until. /tutorial/PAGE/setup prepares
# the machine. tests/tutorial.sh creates these files.
. /tests/nrs.sh

# modprobe finds the module as if a package had installed it; the shell's job messages are
# suppressed.
mkdir -p /etc/modprobe.d
# shellcheck disable=SC2016 # modprobe's own variable
echo 'install nrs /bin/insmod /nrs.ko $CMDLINE_OPTS' >/etc/modprobe.d/nrs.conf
set +m

# booted: restores the state after a boot, whatever ran before.
booted() {
	local module
	clean_up
	for module in nrs null_blk; do
		if [ -d "/sys/module/$module" ]; then rmmod $module; fi
	done
	# What pages take for granted; a test may call its disk "disk".
	if [ -L /dev/sdb ]; then rm /dev/sdb; fi
	rm -rf /etc/nrs /dev/vg /dev/disk
	mkdir -p /etc/nrs
}

# block FILE NAME: runs the block in this shell, because later commands depend on its state. Each
# line is a command that must succeed.
block() {
	local said=/out/tutorial-${2//\//-}.txt failed='' pattern condition
	trap 'failed=1 && echo "failed: $BASH_COMMAND"' ERR
	set -E
	# shellcheck disable=SC1090
	. "$1" >"$said" 2>&1 </dev/null
	set +E
	trap - ERR
	sed "s,^,# $2: ," "$said"
	if [ -z "$failed" ]; then
		ok "$2: $(head -n 1 "$1")"
	else
		not_ok "$2: $(head -n 1 "$1")" "$(tail -n 3 "$said")"
	fi
	while IFS= read -r pattern; do
		check "$2 prints '$pattern'" grep -qE -- "$pattern" "$said"
	done <"${1%.sh}.expect"
	while IFS= read -r condition; do
		check "$2 until $condition" wait_for 60 "$condition"
	done <"${1%.sh}.until"
}

for page in /tutorial/*; do
	booted
	if [ -f "$page/setup" ]; then
		# shellcheck disable=SC1091
		. "$page/setup" || not_ok "${page##*/}: setup"
	fi
	for file in "$page"/*.sh; do
		block "$file" "${page##*/}/$(basename "$file" .sh)"
	done
done
booted
summary
