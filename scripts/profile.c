// SPDX-License-Identifier: GPL-2.0-only
/*
 * Plugin of QEMU that counts the instructions that a machine runs from each address on. Each line
 * of its file has the virtual address of a translated block, its number of instructions, and the
 * number of its executions. Built and used by scripts/bench-vm.sh --profile.
 *
 * Debian does not package the header for plugins; the declarations follow the documentation of the
 * interface, version 4.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct qemu_plugin_tb;
struct qemu_plugin_scoreboard;
struct counter {
	struct qemu_plugin_scoreboard *score;
	size_t offset;
};
enum { ADD_U64 };

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id,
	void (*translated)(uint64_t id, struct qemu_plugin_tb *tb));
void qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(struct qemu_plugin_tb *tb, int op,
	struct counter counter, uint64_t by);
void qemu_plugin_register_atexit_cb(uint64_t id, void (*ended)(uint64_t id, void *data),
	void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t size);
uint64_t qemu_plugin_u64_sum(struct counter counter);

__attribute__((visibility("default"))) int qemu_plugin_version = 4;

/*
 * Maximum number of blocks, a power of two. A machine that boots and runs a benchmark translates
 * some 200,000.
 */
#define BLOCKS (1u << 20)

static struct {
	uint64_t address;
	uint32_t length;
} blocks[BLOCKS];
static struct qemu_plugin_scoreboard *counts;
static char path[4096];

/* Registers a translated block. The only CPU translates, so calls are never concurrent. */
static void translated(uint64_t id, struct qemu_plugin_tb *tb)
{
	uint64_t address = qemu_plugin_tb_vaddr(tb);
	uint32_t length = qemu_plugin_tb_n_insns(tb), place, tries;

	(void)id;
	place = (uint32_t)((address * 31 + length) * 0x9e3779b97f4a7c15u >> 44) % BLOCKS;
	for (tries = 0; tries < BLOCKS; tries++, place = (place + 1) % BLOCKS) {
		if (!blocks[place].length) {
			blocks[place].address = address;
			blocks[place].length = length;
		}
		if (blocks[place].address == address && blocks[place].length == length) {
			struct counter counter = { counts, place * sizeof(uint64_t) };

			qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, ADD_U64, counter, 1);
			return;
		}
	}
	fprintf(stderr, "profile: more than %u blocks\n", BLOCKS);
	exit(1);
}

static void ended(uint64_t id, void *data)
{
	FILE *out = fopen(path, "w");
	uint32_t place;

	(void)id, (void)data;
	for (place = 0; out && place < BLOCKS; place++) {
		struct counter counter = { counts, place * sizeof(uint64_t) };
		uint64_t ran = blocks[place].length ? qemu_plugin_u64_sum(counter) : 0;

		if (ran)
			fprintf(out, "%llx %u %llu\n", (unsigned long long)blocks[place].address,
				blocks[place].length, (unsigned long long)ran);
	}
	if (!out || fclose(out))
		fprintf(stderr, "profile: cannot write %s\n", path);
}

__attribute__((visibility("default"))) int qemu_plugin_install(uint64_t id, const void *info,
	int argc, char **argv);

/* Installs the plugin; its argument is out=FILE. */
int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv)
{
	(void)info;
	if (argc != 1 || strncmp(argv[0], "out=", 4) || strlen(argv[0] + 4) >= sizeof(path))
		return -1;
	strcpy(path, argv[0] + 4);
	counts = qemu_plugin_scoreboard_new(BLOCKS * sizeof(uint64_t));
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_atexit_cb(id, ended, NULL);
	return 0;
}
