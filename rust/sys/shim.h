/* SPDX-License-Identifier: GPL-2.0-only */
/* Kernel services that only C can reach: macros and inline functions, one wrapper each. */
#ifndef NRS_SHIM_H
#define NRS_SHIM_H

#include <linux/spinlock_types.h>
#include <linux/types.h>
#include <linux/version.h>

struct bio;
struct block_device;
struct device;
struct file;
struct mapped_device;

/* Sends @bio to @bdev. */
void nrs_bio_set_dev(struct bio *bio, struct block_device *bdev);

/*
 * Which file the first page of @bio caches a part of: its number in its file system, and where the page is in it. False if
 * the page belongs to no file, or the file might go while one looks.
 */
bool nrs_bio_file(struct bio *bio, u64 *file, u64 *offset);

/* Ends @bio, which was not submitted, with @error. */
void nrs_bio_end(struct bio *bio, int error);

/* Whether an interrupt is handled, hard or soft. */
bool nrs_in_interrupt(void);

/* The disk of @md, with a reference to it. */
struct device *nrs_md_disk(struct mapped_device *md);

/* Tells user space that @disk has changed; @words are NAME=value, and then null. */
void nrs_disk_changed(struct device *disk, char **words);

/* Number of requests the queue of @bdev keeps in flight; 0 if it does not say. */
unsigned int nrs_bdev_depth(struct block_device *bdev);

/* Whether @bdev is zoned. */
bool nrs_bdev_is_zoned(struct block_device *bdev);

/* Whether structures that both languages use have these sizes: bindgen reads the headers with another compiler. */
bool nrs_sizes_are(size_t dm_target, size_t target_type, size_t event);

/* Id of the cgroup of the running task on the unified hierarchy. */
u64 nrs_current_cgroup(void);

/* Last component of the path of the running task's cgroup, or a negative errno. */
int nrs_current_cgroup_name(char *buf, size_t len);

/* Id of the cgroup on the unified hierarchy that @bio is charged to; 0: none, or the root. */
u64 nrs_bio_cgroup(struct bio *bio);

/* Last component of the path of that cgroup, or a negative errno: ENODATA if there is none. */
int nrs_bio_cgroup_name(struct bio *bio, char *buf, size_t len);

/*
 * Whether the running task can be held back: a user's, which nobody waits for that a request depends on. It is in no transaction
 * of a file system, reclaims no memory, and has no other bios to submit first, here or in the device that stands on this one.
 */
bool nrs_can_hold_back(void);

/* Network host name of the running task's namespace. */
int nrs_hostname(char *buf, size_t len);

/* Forbids I/O in allocations of the running task until restored with the value returned. */
unsigned int nrs_noio_save(void);
void nrs_noio_restore(unsigned int flags);

/* Lets another task run if one wants to. */
void nrs_cond_resched(void);

/* Index of the NUMA node of @cpu. */
int nrs_cpu_to_node(unsigned int cpu);

/* Holds off the removal of @file, one of debugfs, until it is put; an errno if it was removed already. */
int nrs_debugfs_get(struct file *file);
void nrs_debugfs_put(struct file *file);

#if LINUX_VERSION_CODE < KERNEL_VERSION(7, 3, 0)
/*
 * Disable interrupts of this CPU, lock, and the other way round. The locks of a CPU may be unlocked in any order: the last
 * one to be unlocked enables interrupts, if the first one disabled them.
 */
void nrs_irq_lock(spinlock_t *lock);
bool nrs_irq_try_lock(spinlock_t *lock);
void nrs_irq_unlock(spinlock_t *lock);
#endif

/* Whether a message may be printed now; counts what is held back. */
bool nrs_ratelimit(void);

#endif
