# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-only
# Loads of a soak: each repeats and verifies its operations. Sourced by soak.sh.

# checksums NAME UID: Writes blocks of mixed sizes with checksums to the user's own device, reads
# them back and compares; the last data is kept for the end.
checksums() {
	worker "fio-$1" $((seed + $2))
	local round=0 size jobs=()
	while on; do
		round=$((round + 1)) size=$((4 + RANDOM % 20))
		jobs=(--randseed=$((seed * 1000 + round)) --size=${size}m --iodepth=$((1 + RANDOM % 16)))
		if [ $((RANDOM % 4)) = 0 ]; then
			jobs+=(--bssplit=4k/60:16k/20:64k/20)
		else
			jobs+=(--bssplit=4k/10:64k/20:512k/70)
		fi
		if ! sums "$1" "$2" "${jobs[@]}" >"$work/fio-$1"; then
			find_out "fio: $(tail -n 4 "$work/fio-$1" | cut -c1-400)"
			break
		fi
		add 1 'fio run'
		add $(($(terse "$work/fio-$1" 47) * 1024)) 'fio bytes written'
		add $(($(terse "$work/fio-$1" 6) * 1024)) 'fio bytes verified'
		put
		echo "${jobs[@]}" >"$work/last-$1"
	done
}

# sums NAME UID OPTION...: Runs fio with checksums.
sums() {
	local name=$1 uid=$2
	shift 2
	setpriv --reuid "$uid" --clear-groups fio --filename="/dev/mapper/$name" --rw=randwrite \
		--direct=1 --ioengine=libaio --verify=crc32c --verify_fatal=1 --do_verify=1 \
		--verify_state_save=0 --minimal --group_reporting --name="$name" "$@" 2>&1
}

# sums_again NAME UID: Reads and verifies the last data once more.
sums_again() {
	worker "again-$1" 1
	local jobs
	[ -s "$work/last-$1" ] || fail "$1 has written nothing"
	read -ra jobs <"$work/last-$1"
	sums "$1" "$2" "${jobs[@]}" --verify_only=1 >"$work/fio-$1" ||
		find_out "fio at the end: $(tail -n 4 "$work/fio-$1" | cut -c1-400)"
	add $(($(terse "$work/fio-$1" 6) * 1024)) 'fio bytes compared at the end'
	put
}

# reads NAME UID OPTION...: Reads without end; this process becomes fio, so that a kill ends all of
# it.
reads() {
	local name=$1 uid=$2
	shift 2
	exec setpriv --reuid "$uid" --clear-groups fio --filename="/dev/mapper/$name" --rw=randread \
		--bs=4k --direct=1 --ioengine=libaio --norandommap --minimal --thread --time_based \
		--runtime=1000000 --name="$name" "$@"
}

# small: Moves this process and its children to a group with little memory.
small() {
	local group=/sys/fs/cgroup/testsoak.$me
	mkdir -p $group
	echo 24M >$group/memory.high
	echo 160M >$group/memory.max
	echo "$BASHPID" >$group/cgroup.procs
}

# at_home UID: Runs the steps of this process as that user, in their own directory, $dir.
at_home() {
	dir=/mnt/soak/$me
	mkdir -p "$dir"
	chown "$1" "$dir"
	as=(setpriv --reuid "$1" --clear-groups env HOME="$dir" GIT_CONFIG_NOSYSTEM=1)
	cd "$dir"
	small
}

# lines N: Prints N lines of random text, without a process.
lines() {
	local i
	for ((i = 0; i < $1; i++)); do echo "$i $RANDOM $RANDOM and $((RANDOM * RANDOM)) of $me"; done
}

# step COMMAND...: Runs a command that must succeed; sets $said to its output.
as=()
step() {
	if said=$("${as[@]}" "$@" 2>&1); then return 0; fi
	find_out "$*: $(tail -n 5 <<<"$said")"
	return 1
}

# commits: Creates repositories with a few commits of generated files, packs and checks them.
commits() {
	worker git $((seed + 21))
	at_home 1007
	local top=$dir round n objects
	local git=(git -c user.name=soak -c user.email=soak@example.org -c gc.auto=0
		-c maintenance.auto=false -C "$dir/work")
	dir=$top/work
	while on; do
		rm -rf "$dir" "$top/clone"
		step mkdir "$dir" || return 0
		step "${git[@]}" init -q -b main || return 0
		n=$((2 + RANDOM % 4))
		for ((round = 0; round < n; round++)); do
			step mkdir -p "$dir/d$((round % 2))" || return 0
			lines $((50 + RANDOM % 200)) >"$dir/d$((round % 2))/f$((RANDOM % 4))"
			lines 20 >>$dir/log
			step "${git[@]}" add -A || return 0
			step "${git[@]}" commit -q -m "round $round" || return 0
			add 1 'git commit'
			put
		done
		step "${git[@]}" gc -q --prune=now || return 0
		step "${git[@]}" fsck --full --strict --no-progress || return 0
		[ -z "$said" ] || find_out "git fsck: $said"
		step "${git[@]}" rev-list --count HEAD || return 0
		[ "$said" = "$n" ] || find_out "git: $said commits, not $n"
		step "${git[@]}" status --porcelain || return 0
		[ -z "$said" ] || find_out "git status: $said"
		step "${git[@]}" rev-list --objects --all || return 0
		objects=$(wc -l <<<"$said")
		step git clone -q --no-hardlinks --upload-pack "git upload-pack" "$dir" "$top/clone" ||
			return 0
		step diff -r "$dir/d0" "$top/clone/d0" || return 0
		add 1 'git gc and fsck'
		add "$objects" 'git object'
		put
	done
}

# archives: Creates and extracts archives, and compares them with both the source and the extracted
# files.
archives() {
	worker tar $((seed + 22))
	small
	local dir=/mnt/soak/tar files
	while on; do
		rm -rf $dir
		mkdir -p $dir/x
		step tar -C / -cf $dir/a.tar tests etc || return 0
		step tar -C $dir/x -xf $dir/a.tar || return 0
		sync -f $dir/a.tar 2>/dev/null || sync
		# Reads from the device, not from the page cache.
		echo 1 >/proc/sys/vm/drop_caches
		step tar -C / --compare -f $dir/a.tar || return 0
		step tar -C $dir/x --compare -f $dir/a.tar || return 0
		step cp -a $dir/x $dir/y || return 0
		step diff -r $dir/x $dir/y || return 0
		files=$(tar -tf $dir/a.tar | wc -l)
		add 1 'tar archive'
		add "$files" 'tar file'
		put
	done
}

# rows: Runs transactions, some of which are rolled back, in a database that is checked every few
# transactions.
rows() {
	worker sqlite $((seed + 23))
	at_home 1008
	local db=$dir/db n=0 more round mode
	step sqlite3 $db 'create table t (a integer, b integer, c text); create index i on t (b);' ||
		return 0
	while on; do
		mode=$([ $((RANDOM % 2)) = 0 ] && echo wal || echo delete)
		for ((round = 0; round < 3; round++)); do
			more=$((20 + RANDOM % 200))
			# A transaction that is rolled back has no effect.
			step sqlite3 $db ".timeout 60000" "pragma journal_mode=$mode;" \
				"begin; delete from t; rollback;" \
				"begin; with recursive s(x) as
				(select 1 union all select x + 1 from s where x < $more)
				insert into t select x + $n, (x + $n) * 7919 % 1000003, hex(randomblob(100))
				from s; commit;" || return 0
			n=$((n + more))
			add 1 'sqlite transaction'
		done
		step sqlite3 $db "pragma integrity_check; select count(*), count(*) filter
			(where b <> a * 7919 % 1000003 or length(c) <> 200) from t;" || return 0
		[ "$said" = "ok"$'\n'"$n|0" ] || find_out "sqlite: '$said', not $n rows"
		add "$n" 'sqlite row'
		put
		if [ "$n" -gt 5000 ]; then
			step sqlite3 $db "delete from t; vacuum;" || return 0
			n=0
		fi
	done
}

# clients_of_a_server: Runs dbench, the load of a file server's clients.
clients_of_a_server() {
	worker dbench $((seed + 25))
	at_home 1009
	while on; do
		step dbench -D "$dir" -c /usr/share/dbench/client.txt -t 2 1 || return 0
		[[ $said = *Throughput* ]] || find_out "dbench: $(tail -n 3 <<<"$said")"
		add 1 'dbench run'
		put
	done
}

# stresses: Runs stress-ng, which verifies the data that it reads.
stresses() {
	worker stress $((seed + 26))
	at_home 1010
	while on; do
		step stress-ng --temp-path "$dir" --verify --timeout 2 --hdd 1 --hdd-bytes 4m --aio 1 \
			--iomix 1 --iomix-bytes 4m --sync-file 1 --mmap 1 --mmap-file --mmap-bytes 4m \
			--io-uring 1 || return 0
		add 1 'stress-ng run'
		put
	done
}

# small_files: Runs fs_mark, which writes and syncs files.
small_files() {
	worker fs_mark $((seed + 27))
	at_home 1011
	while on; do
		step fs_mark -d "$dir/files" -n 50 -s 4096 -S 1 -v || return 0
		rm -rf "$dir/files"
		add 50 'fs_mark file'
		put
	done
}

# servers: Runs programs on /dev/nrs with many clients; some are killed, and the others must serve
# all requests.
servers() {
	worker server $((seed + 24))
	local pid out=$work/server submitted served args status
	while on; do
		local deep="uid=1001,jobid=deep,depth=$((1 + RANDOM % 32)),opcode=ost_write"
		local many='uid=1002,jobid=job.%,count=10,rate=20,stream=3'
		args=(--service user --seconds $((1 + RANDOM % 3)) --busy $((RANDOM % 3000)) --drain
			--client "name=deep,nid=10.0.0.1@tcp,$deep,size=1048576,object=7,offset=seq"
			--client "name=many%,nid=10.0.1.1@tcp,$many,opcode=ost_read,size=65536"
			--client "name=fast,nid=10.0.2.1@tcp,uid=1003,jobid=fast,rate=50,priority=high")
		[ $((RANDOM % 3)) != 0 ] || args+=(--queue-all)
		[ $((RANDOM % 3)) != 0 ] || args+=(--credits --promote 10)
		nrs-test load "${args[@]}" >$out 2>&1 &
		pid=$!
		if [ $((RANDOM % 3)) = 0 ]; then
			linger 300 2500
			kill -KILL $pid 2>/dev/null || true
			wait $pid 2>/dev/null || true
			add 1 'server killed'
		else
			status=0
			wait $pid || status=$?
			submitted=$(awk '$1 == "\"submitted\":" { n += $2 } END { print n + 0 }' $out)
			# The total; each client's own count is indented further.
			served=$(awk '/^  "served":/ { print $2 + 0 }' $out)
			if [ $status != 0 ] || [ "$submitted" != "$served" ]; then
				find_out "nrs-test load: status $status, $served of $submitted served;" \
					"$(tail -n 3 $out | cut -c1-300)"
			fi
			add 1 'server run'
			add "$submitted" 'server submitted'
			add "$served" 'server served'
		fi
		put
		linger 100 500
	done
}
