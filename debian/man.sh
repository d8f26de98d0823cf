#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: man.sh DIR AGENT
#
# Writes the manual pages nrs(4), nrs.toml(5), dm-nrs(8) and nrs-agent(8) into DIR, converted from
# pages and sections of Documentation. nrs-agent(8) also includes the option help of the program
# AGENT.
set -eu
case ${1:---help} in
--help | -h) sed -n '/^# usage/,/^[^#]/{/^#/!d;s/^# \{0,1\}//;p}' "$0" && exit ;;
esac
dir=$1 agent=$(realpath "$2")
cd "$(dirname "$0")/.."
version=$(dpkg-parsechangelog -S Version)
date=$(date -u -d "@$(dpkg-parsechangelog -S Timestamp)" +%F)

# text FILE [HEADING...]: Prints the page without its comments, or only the sections with these
# headings. Code blocks are unchanged.
text() {
	file=Documentation/$1
	shift
	[ $# != 0 ] || { sed '/^<!--.*-->$/d' "$file" && return; }
	for heading; do
		grep -qx "## $heading" "$file" || {
			echo "man.sh: error: no section '$heading' in $file" >&2 && return 1
		}
		awk -v wanted="## $heading" \
			'/^```/ { code = !code } /^##? / && !code { on = $0 == wanted } on' "$file" |
			sed '1s/^##/#/'
	done
}

# page NAME SECTION SUMMARY: Converts standard input to a manual page without links between pages.
# The first line tells man(1) to format tables.
page() {
	{
		printf '# NAME\n\n%s - %s\n\n' "$1" "$3"
		sed -E '/^```/,/^```/!s/\[([^]]*)\]\([^)]*\)/\1/g'
		printf '\n# SEE ALSO\n\n%s%s\n' '**nrs**(4), **nrs.toml**(5), **dm-nrs**(8), ' \
			'**nrs-agent**(8), **nrsctl**(1), `/usr/share/doc/nrs/Documentation`'
	} >"$dir/$1.md"
	printf "'\\\\\" t\n" >"$dir/$1.$2"
	lowdown -s -t man --nroff-no-numbered -M "title=$1" -M "section=$2" -M "date=$date" \
		-M "source=nrs $version" "$dir/$1.md" >>"$dir/$1.$2"
	rm "$dir/$1.md"
}

text dev-nrs.md >"$dir/text"
text control.md >>"$dir/text"
page nrs 4 "nodes /dev/nrs and /dev/nrs-control of the network request scheduler" <"$dir/text"
text configuration.md >"$dir/text"
page nrs.toml 5 "configuration files of the network request scheduler" <"$dir/text"
text dm-nrs.md >"$dir/text"
page dm-nrs 8 "device-mapper target of the network request scheduler" <"$dir/text"
text agent.md >"$dir/text"
"$agent" --help | sed '1i# OPTIONS\n\n```' >>"$dir/text"
echo '```' >>"$dir/text"
page nrs-agent 8 "fair shares over several servers of the network request scheduler" <"$dir/text"
rm "$dir/text"
