# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-only
# Counts of a soak: each process keeps its own, a line "COUNT ERRNO KIND" per kind, as nrs-test
# storm does; the report sums them. Sourced by soak.sh.

work=/tmp/soak
stop=$work/stop
finds=$work/finds

# worker NAME SEED: Initialises a process of the soak.
worker() {
	set +x
	me=$1
	RANDOM=$2
	# The process that watches time and progress keeps its higher priority.
	[ "$me" = watch ] || renice -n 5 -p $BASHPID >/dev/null 2>&1 || true
	declare -gA counted=()
}

# on: Returns true while the soak runs.
on() {
	[ ! -e $stop ]
}

# add N KIND [ERRNO]: Adds N to a count.
add() {
	local key="${3:-ok} $2"
	counted[$key]=$((${counted[$key]:-0} + $1))
}

# put: Writes the counts to the file that the report reads.
put() {
	local key
	for key in "${!counted[@]}"; do echo "${counted[$key]} $key"; done >"$work/counts/$me"
}

# find_out TEXT: Records a failure of the soak.
find_out() {
	local text=$*
	printf '%s: %s\n' "$me" "${text//$'\n'/ }" >>$finds
}

# errno TEXT: Prints the name of the error in a command's output.
errno() {
	case $1 in
	*'Cannot allocate memory'*) echo ENOMEM ;;
	*'Device or resource busy'*) echo EBUSY ;;
	*'temporarily unavailable'*) echo EAGAIN ;;
	*'Invalid argument'*) echo EINVAL ;;
	*'No such device or address'*) echo ENXIO ;;
	*'No such file'*) echo ENOENT ;;
	*'No such device'*) echo ENODEV ;; *'No space left'*) echo ENOSPC ;; *) echo other ;;
	esac
}

# linger LOW HIGH: Sleeps for a random time, ms; ends early with the soak.
linger() {
	local ms=$(($1 + RANDOM % ($2 - $1 + 1)))
	while [ "$ms" -gt 500 ] && on; do
		sleep 0.5
		ms=$((ms - 500))
	done
	! on || sleep "$(printf '0.%03d' $((ms % 1000)))"
}

# watch LIMIT: Writes to $work/gaps the longest times, ms, without a completion, in total and at a
# device with requests; ends the soak after more than LIMIT seconds. Starts no process except sleep.
watch() {
	worker watch 1
	local limit=$1 line name key now last=${EPOCHREALTIME/./} sum total=0 gap longest=0 single=0 \
		where='' beats=0 at=${EPOCHREALTIME/./} behind=0 stuck=0
	declare -A ended=() since=()
	while on; do
		sleep 1
		now=${EPOCHREALTIME/./} sum=0 stuck=0 beats=$((beats + 1))
		# Lateness of this loop: other processes may have been stalled for that long.
		gap=$(((now - at) / 1000 - 1000)) at=$now
		[ "$gap" -le "$behind" ] || behind=$gap
		for name in /sys/kernel/debug/nrs/*/clients; do
			case $name in *fuzz*) continue ;; esac
			while read -r line; do
				[[ $line =~ ^(.*)\ passed:\ ([0-9]+),\ queued:\ ([0-9]+),.*\ ended:\ ([0-9]+), ]] ||
					continue
				key=$name${BASH_REMATCH[1]%%,*}
				sum=$((sum + BASH_REMATCH[4]))
				# An upper bound: requests completed since the last look may have completed at once.
				gap=$(((now - ${since[$key]:-$now}) / 1000))
				[ "$gap" -le "$single" ] || single=$gap where=$key
				if [ "${ended[$key]:-}" != "${BASH_REMATCH[4]}" ] ||
					[ $((BASH_REMATCH[2] + BASH_REMATCH[3])) = "${BASH_REMATCH[4]}" ]; then
					ended[$key]=${BASH_REMATCH[4]} since[$key]=$now
				fi
				gap=$(((now - ${since[$key]}) / 1000))
				[ "$gap" -le "$stuck" ] || stuck=$gap
			done <"$name"
		done 2>/dev/null
		# A stall during a suspend is expected.
		gap=$(((now - last) / 1000))
		[ "$gap" -le "$longest" ] || longest=$gap
		if [ "$sum" != "$total" ] || [ -e $work/suspended ]; then last=$now total=$sum; fi
		gap=$(((now - last) / 1000))
		[ "$gap" -le "$stuck" ] || stuck=$gap
		echo "$longest $single $behind $where" >$work/gaps
		if [ "$stuck" -gt $((limit * 1000)) ]; then
			find_out "nothing ended for $stuck ms, at all or at ${where:-a device}"
			{
				dm status &&
					grep -s '' /sys/kernel/debug/nrs/*/{clients,nrs_policies,slots,health} && ps
			} >/out/stuck 2>&1
			echo w >/proc/sysrq-trigger
			touch $stop
		fi
	done
	add "$beats" "look at progress"
	put
}

# of ERRNO KIND...: Prints the sum of the counts with that errno ("*": any) whose kind begins with a
# KIND.
of() {
	local errno=$1
	shift
	cat $work/counts/* 2>/dev/null | awk -v errno="$errno" -v kinds="$(printf '%s\n' "$@")" '
		BEGIN { n = split(kinds, k, "\n") }
		errno == "*" || $2 == errno { text = $0; sub(/^[^ ]+ [^ ]+ /, "", text)
			for (i = 1; i <= n; i++)
				if (k[i] != "" && index(text, k[i]) == 1) { sum += $1; break } }
		END { printf "%d", sum }'
}

# report: Prints the tables, as Markdown.
report() {
	local longest single behind where
	read -r longest single behind where <$work/gaps
	cat <<END
| run | |
|---|---|
| kernel | $(uname -r) |
| seed, time | $seed, $took s of $seconds s requested |
| **loads** | |
| written to block devices with checksums | \
$(of ok 'fio bytes written') bytes in $(of ok 'fio run') runs of fio |
| read back and compared | $(of ok 'fio bytes verified') bytes; \
at the end once more $(of ok 'fio bytes compared at the end') bytes |
| files created, renamed, linked, stat'ed, read, removed | \
$(of ok 'tree create') $(of ok 'tree rename') $(of ok 'tree link') $(of ok 'tree stat') \
$(of ok 'tree read') $(of ok 'tree unlink'), \
$(of ok 'tree name compared') compared at the end |
| git: commits, garbage collections and checks, objects checked | \
$(of ok 'git commit') $(of ok 'git gc and fsck') $(of ok 'git object') |
| tar: archives, files extracted and compared | $(of ok 'tar archive') $(of ok 'tar file') |
| sqlite: transactions, rows checked | $(of ok 'sqlite transaction') $(of ok 'sqlite row') |
| dbench, stress-ng: runs; fs_mark: files | \
$(of ok 'dbench run') $(of ok 'stress-ng run') $(of ok 'fs_mark file') |
| /dev/nrs: requests served of those submitted | \
$(of ok 'server served') of $(of ok 'server submitted') in $(of ok 'server run') runs; \
$(of ok 'server killed') runs killed |
| **changes and faults** | |
| changes of a service (policies, rules, plans, weights, tunables) | \
$(of '*' 'write ' 'set ' 'message '), accepted $(of ok 'write ' 'set ' 'message ') |
| suspended and resumed | $(of ok 'suspend') |
| tables reloaded | $(of ok 'reload') |
| clients added and removed under load, killed | $(of ok 'client gone') $(of ok 'client killed') |
| texts to files of debugfs, configfs; directories made, removed | \
$(of '*' 'debugfs write') $(of '*' 'configfs write') \
$(of ok 'configfs mkdir') $(of ok 'configfs rmdir') |
| partial reads of these files | $(of '*' 'debugfs read' 'configfs read') |
| random messages, tables | $(of '*' 'message' 'table') |
| calls of /dev/nrs, of these with wrong records; storms killed | \
$(of '*' 'device ') $(of '*' 'device write of wrong') $(of ok 'storm killed') |
| allocations that were made to fail: slab, pages | \
$(of ok 'fault of failslab') $(of ok 'fault of fail_page_alloc') |
| memory of the file system's users reclaimed at their limit | \
$(awk '$1 == "high" { n += $2 } END { print n + 0 }' $work/memory.events 2>/dev/null) times |
| **result** | |
| upper bound of the longest time without a completion | $longest ms |
| the same at one device with requests | $single ms (${where##*/nrs/}) |
| longest delay of the observer | $behind ms |
| requests lost | $lost |
| wrong or missing data, other findings | $(wc -l <$finds) |

| count | answer | call |
|---|---|---|
END
	cat $work/counts/* | awk '
		$1 != "finding" {
			key = $2; $2 = ""; n = $1; $1 = ""; sub(/^ +/, ""); sum[$0 "\t" key] += n
		}
		END {
			for (i in sum) {
				split(i, p, "\t"); printf "| %d | %s | %s |\n", sum[i], p[2], p[1]
			}
		}
	' | sort -t'|' -k4,4 -k2,2nr
}
