/* SPDX-License-Identifier: GPL-2.0-only */
/* Wrappers of macros and inline functions of the kernel. */
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

/* Redirects @bio to @bdev. */
void nrs_bio_set_dev(struct bio *bio, struct block_device *bdev);

/*
 * Shortens @bio, which has data and is being mapped by a target, to @bytes, to the limit of the
 * device (max_sectors_kb), and to whole units of encryption. Device-mapper maps the rest later.
 * Returns false if the bio is no longer than that.
 */
bool nrs_bio_split(struct bio *bio, unsigned int bytes);

/*
 * Returns the inode number of the file that the first page of @bio caches, and the offset of the
 * data in the file. Returns false if the page belongs to no file, or if the file could be freed
 * meanwhile.
 */
bool nrs_bio_file(struct bio *bio, u64 *file, u64 *offset);

/* Ends @bio, which was not submitted, with @error. */
void nrs_bio_end(struct bio *bio, int error);

/* Returns true in hard or soft interrupt context. */
bool nrs_in_interrupt(void);

/* Returns the disk of @md with a reference. */
struct device *nrs_md_disk(struct mapped_device *md);

/* Sends a change uevent of @disk with the variables @words: NAME=value, terminated by NULL. */
void nrs_disk_changed(struct device *disk, char **words);

/* Returns the number of requests that the queue of @bdev keeps in flight; 0 if unknown. */
unsigned int nrs_bdev_depth(struct block_device *bdev);

/* Returns the number of the disk of @bdev, which may be a partition. */
dev_t nrs_bdev_disk(struct block_device *bdev);

/* Returns true if @bdev is zoned. */
bool nrs_bdev_is_zoned(struct block_device *bdev);

/*
 * Returns true if the structures have these sizes: bindgen parses the headers with another
 * compiler.
 */
bool nrs_sizes_are(size_t dm_target, size_t target_type, size_t event);

/*
 * Returns the id of a cgroup on the unified hierarchy: that of the running task; or if the task is
 * a kernel thread, or @bio is charged to a cgroup that the task is not in, that of @bio below the
 * root. 0: none. @bio may be NULL.
 */
u64 nrs_cgroup(struct bio *bio);

/*
 * Copies a name in the path of that cgroup: at @level, 1 below the root, or the last one for 0.
 * Returns its length or a negative errno: -ENODATA if there is none, -E2BIG if it was truncated.
 */
int nrs_cgroup_name(struct bio *bio, int level, char *buf, size_t len);

/*
 * Returns the id of the cgroup on the unified hierarchy to which @bio is charged, unless that is
 * the root or @bio is NULL; else that of the running task; 0 for a kernel thread.
 */
u64 nrs_charged_cgroup(struct bio *bio);

/* Returns true if @bio is charged to a cgroup below the root that the running task is not in. */
bool nrs_bio_is_foreign(struct bio *bio);

/*
 * Copies the IPv4 or IPv6 address of the client for whom the running thread of the kernel's NFS
 * server works; returns its length, or 0 if the task is no such thread.
 */
unsigned int nrs_nfs_client(u8 *address);

/*
 * Returns true if the running task can be throttled. Such a task is in no transaction of a file
 * system and reclaims no memory. It has no other bios to submit first, here or in a device stacked
 * on this one.
 */
bool nrs_can_hold_back(void);

/*
 * Copies the host name of the running task's UTS namespace; returns its length or a negative errno.
 */
int nrs_hostname(char *buf, size_t len);

/* Forbids I/O in allocations of the running task until restored with the returned value. */
unsigned int nrs_noio_save(void);
void nrs_noio_restore(unsigned int flags);

/* Calls cond_resched(). */
void nrs_cond_resched(void);

/* Returns the NUMA node of @cpu, below nr_cpu_ids; 0 if the CPU is not possible. */
int nrs_cpu_to_node(unsigned int cpu);

/* Delays the removal of @file of debugfs until nrs_debugfs_put(); an errno if already removed. */
int nrs_debugfs_get(struct file *file);
void nrs_debugfs_put(struct file *file);

#if LINUX_VERSION_CODE < KERNEL_VERSION(7, 3, 0)
/*
 * Disable interrupts of this CPU and lock; unlock and enable. The locks of a CPU may be unlocked in
 * any order: the last unlock enables interrupts, if the first lock disabled them.
 */
void nrs_irq_lock(spinlock_t *lock);
bool nrs_irq_try_lock(spinlock_t *lock);
void nrs_irq_unlock(spinlock_t *lock);
#endif

/* Returns true if a message may be printed now; counts suppressed messages. */
bool nrs_ratelimit(void);

#endif
