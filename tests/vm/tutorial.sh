#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The commands of Documentation/tutorial.md as they are written there, in one shell: /tutorial/NN.sh, with what they have to print in
# /tutorial/NN.expect, an extended regular expression in each line, and what to wait for before the next in /tutorial/NN.until. All are
# made by tests/tutorial.sh.
. /tests/nrs.sh

# As on a machine that has just started, whatever ran before.
clean_up
for module in nrs null_blk; do
	if [ -d "/sys/module/$module" ]; then rmmod "$module"; fi
done
# modprobe finds the module as if a package had installed it; what the shell tells of jobs is not wanted.
mkdir -p /etc/modprobe.d /etc/nrs
# shellcheck disable=SC2016 # modprobe's own variable
echo 'install nrs /bin/insmod /nrs.ko $CMDLINE_OPTS' >/etc/modprobe.d/nrs.conf
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
