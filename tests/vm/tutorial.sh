#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The commands of Documentation/tutorial.md as written, in one shell: /tutorial/NN.sh, with the
# expected output in /tutorial/NN.expect, an extended regular expression per line, and a condition
# to wait for before the next block in /tutorial/NN.until. tests/tutorial.sh creates these files.
. /tests/nrs.sh

# As on a machine that has just booted, whatever ran before.
clean_up
for module in nrs null_blk; do
	if [ -d "/sys/module/$module" ]; then rmmod "$module"; fi
done
# modprobe finds the module as if a package had installed it; the shell's job messages are
# suppressed.
mkdir -p /etc/modprobe.d /etc/nrs
# shellcheck disable=SC2016 # modprobe's own variable
echo 'install nrs /bin/insmod /nrs.ko $CMDLINE_OPTS' >/etc/modprobe.d/nrs.conf
set +m

for file in /tutorial/*.sh; do
	name=$(basename "$file" .sh)
	said=/out/tutorial-$name.txt
	# Each line is a command that must succeed. In this shell, because later commands depend on its
	# state.
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
