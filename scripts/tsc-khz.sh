#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/tsc-khz.sh
#
# Prints the frequency of this host's time stamp counter, kHz. An emulated machine reads this
# counter as its own, unless its time counts instructions. The result is cached per boot of this
# host.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
case ${1:-} in
--help | -h) usage && exit ;;
'') ;;
*) die "unknown argument '$1', see --help" ;;
esac
[ -n "${NRS_IN_ROOT:-}" ] || exec "$NRS_SCRIPTS/in-root.sh" "$0"

file=$NRS_CACHE/tsc-khz
boot=$(cat /proc/sys/kernel/random/boot_id)
lock tsc-khz
if ! [ -f "$file" ] || [ "$(cut -d' ' -f1 "$file")" != "$boot" ]; then
	program=$(mktemp)
	# shellcheck disable=SC2064
	trap "rm -f '$program'" EXIT
	clang -x c -O1 -o "$program" - <<'END'
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

/* Reads both clocks. Of many tries the shortest counts, in which nothing came between. */
static void read_both(unsigned long long *tsc, long long *ns)
{
	unsigned long long best = -1ULL, before, after;
	struct timespec t;

	for (int i = 0; i < 200; i++) {
		before = __rdtsc();
		clock_gettime(CLOCK_MONOTONIC, &t);
		after = __rdtsc();
		if (after - before >= best)
			continue;
		best = after - before;
		*tsc = before + best / 2;
		*ns = t.tv_sec * 1000000000LL + t.tv_nsec;
	}
}

int main(void)
{
	unsigned long long tsc1, tsc2;
	long long ns1, ns2;

	read_both(&tsc1, &ns1);
	usleep(300000);
	read_both(&tsc2, &ns2);
	printf("%.0f\n", (tsc2 - tsc1) * 1e6 / (ns2 - ns1));
	return 0;
}
END
	stamp "$file" "$boot $("$program")"
fi
cut -d' ' -f2 "$file"
