#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The commands of Documentation/tutorial.md as they are written there, in one shell: /tutorial/NN.sh, with what they have to print in
# /tutorial/NN.expect, an extended regular expression in each line, and what to wait for before the next in /tutorial/NN.until. All are
# made by tests/tutorial.sh.
. /tests/lib.sh

# As a package would have installed it; what the shell tells of jobs is not wanted.
mkdir -p "/lib/modules/$(uname -r)/updates" /etc/nrs
cp /nrs.ko "/lib/modules/$(uname -r)/updates/"
depmod
set +m

for file in /tutorial/*.sh; do
	name=$(basename "$file" .sh)
	said=/out/tutorial-$name.txt
	# Each line is a command that has to succeed. In this shell, for what later ones need of it.
	trap 'failed=1 && echo "failed: $BASH_COMMAND"' ERR
	failed=''
	# shellcheck disable=SC1090
	. "$file" >"$said" 2>&1 </dev/null
	trap - ERR
	sed "s/^/# $name: /" "$said"
	if [ -z "$failed" ]; then ok "$name: $(head -n 1 "$file")"; else not_ok "$name: $(head -n 1 "$file")" "$(tail -n 3 "$said" | tr '\n' ' ')"; fi
	while IFS= read -r pattern; do
		check "$name prints '$pattern'" grep -qE -- "$pattern" "$said"
	done <"/tutorial/$name.expect"
	while IFS= read -r condition; do
		check "$name until $condition" wait_for 60 "$condition"
	done <"/tutorial/$name.until"
done
summary
